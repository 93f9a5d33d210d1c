/* The peers, which know topics only: nats, redis and MQTT 3.1.1, each with one topic for all. */
#define _GNU_SOURCE
#include "fanout.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC "feed"

static void text(struct conn *c, const char *words) { say(c, words, strlen(words)); }

/* nats */

static void nats_greet(struct conn *c) {
    text(c, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
    if (!c->publisher) text(c, "SUB " TOPIC " 1\r\n");
    text(c, "PING\r\n");
}

static size_t nats_consume(struct conn *c, const uint8_t *data, size_t size) {
    const uint8_t *end = memchr(data, '\n', size);
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 1;
    if (!memcmp(data, "MSG ", 4)) { /* MSG topic sid size */
        const char *number = memrchr(data, ' ', head);
        size_t whole = head + strtoul(number, 0, 10) + 2;
        if (size < whole) return 0;
        delivered(c, (const char *)data + head);
        return whole;
    }
    if (!memcmp(data, "PING", 4)) text(c, "PONG\r\n");
    if (!memcmp(data, "PONG", 4) && !c->up) up(c);
    if (data[0] == '-') die("nats-server refused something");
    return head;
}

static void nats_publish(int group, const char *payload) {
    char line[64];
    (void)group;
    put(line, (size_t)snprintf(line, sizeof line, "PUB " TOPIC " %d\r\n", options.size));
    put(payload, (size_t)options.size);
    put("\r\n", 2);
}

/* redis */

static void redis_greet(struct conn *c) {
    text(c, c->publisher ? "*1\r\n$4\r\nPING\r\n" : "*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\n" TOPIC "\r\n");
}

#define MESSAGE "*3\r\n$7\r\nmessage\r\n$4\r\n" TOPIC "\r\n$"
#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$4\r\n" TOPIC "\r\n:1\r\n"

static size_t redis_consume(struct conn *c, const uint8_t *data, size_t size) {
    size_t fixed = sizeof MESSAGE - 1;
    if (c->publisher) { /* +PONG, then :count for each */
        const uint8_t *end = memchr(data, '\n', size);
        if (!end) return 0;
        if (data[0] == '-') die("redis refused something");
        if (!c->up) up(c);
        return (size_t)(end - data) + 1;
    }
    if (!c->up) {
        if (size < sizeof SUBSCRIBED - 1) return 0;
        if (memcmp(data, SUBSCRIBED, sizeof SUBSCRIBED - 1)) die("redis did not subscribe");
        up(c);
        return sizeof SUBSCRIBED - 1;
    }
    if (size < fixed) return 0;
    const uint8_t *end = memchr(data + fixed, '\n', size - fixed);
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 1, whole = head + strtoul((const char *)data + fixed, 0, 10) + 2;
    if (size < whole) return 0;
    delivered(c, (const char *)data + head);
    return whole;
}

static void redis_publish(int group, const char *payload) {
    char line[80];
    (void)group;
    put(line, (size_t)snprintf(line, sizeof line, "*3\r\n$7\r\nPUBLISH\r\n$4\r\n" TOPIC "\r\n$%d\r\n", options.size));
    put(payload, (size_t)options.size);
    put("\r\n", 2);
}

/* MQTT */

static void mqtt_greet(struct conn *c) {
    uint8_t packet[64];
    char name[16];
    int n = snprintf(name, sizeof name, "sink%d", c->number);
    const uint8_t head[] = {0x10, (uint8_t)(12 + n), 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, (uint8_t)n};
    memcpy(packet, head, sizeof head);
    memcpy(packet + sizeof head, name, (size_t)n);
    say(c, packet, sizeof head + (size_t)n);
}

static size_t mqtt_consume(struct conn *c, const uint8_t *data, size_t size) {
    static const uint8_t subscribe[] = {0x82, 9, 0, 1, 0, 4, 'f', 'e', 'e', 'd', 0};
    size_t length = 0, head = 1;
    for (int shift = 0;; shift += 7) {
        if (head >= size || shift > 21) return 0;
        length |= (size_t)(data[head] & 0x7f) << shift;
        if (!(data[head++] & 0x80)) break;
    }
    if (size < head + length) return 0;
    if (data[0] == 0x20) { /* CONNACK */
        if (data[head + 1]) die("mosquitto refused a connection");
        if (c->publisher) up(c);
        else say(c, subscribe, sizeof subscribe);
    } else if (data[0] == 0x90) { /* SUBACK */
        up(c);
    } else if ((data[0] & 0xf0) == 0x30) { /* PUBLISH, QoS 0 */
        delivered(c, (const char *)data + head + 2 + ((size_t)data[head] << 8 | data[head + 1]));
    }
    return head + length;
}

static void mqtt_publish(int group, const char *payload) {
    size_t length = 6 + (size_t)options.size;
    uint8_t head[16] = {0x30};
    size_t n = 1;
    (void)group;
    for (; length > 0x7f; length >>= 7) head[n++] = (uint8_t)(length & 0x7f) | 0x80;
    head[n++] = (uint8_t)length;
    memcpy(head + n, "\0\4" TOPIC, 6);
    put(head, n + 6);
    put(payload, (size_t)options.size);
}

const struct protocol nats = {"nats", nats_greet, nats_consume, nats_publish};
const struct protocol redis = {"redis", redis_greet, redis_consume, redis_publish};
const struct protocol mqtt = {"mqtt", mqtt_greet, mqtt_consume, mqtt_publish};
