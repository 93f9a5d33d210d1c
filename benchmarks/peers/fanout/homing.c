/* homing: subscribers' framing on one side, packets of a publisher on the other. */
#define _GNU_SOURCE
#include "fanout.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *tokens;

static void command(struct conn *c, int count, const char **elements) {
    char body[2048], head[32];
    int n = snprintf(body, sizeof body, "*%d\r\n", count);
    for (int i = 0; i < count; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, "$%zu\r\n%s\r\n", strlen(elements[i]), elements[i]);
    say(c, head, (size_t)snprintf(head, sizeof head, "#%d\r\n", n));
    say(c, body, (size_t)n);
}

static void packet(uint8_t cmd, int count, const uint8_t *ids, const void **bodies, const size_t *sizes) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += 3 + sizes[i];
    uint8_t head[4] = {cmd, (uint8_t)(size >> 8), (uint8_t)size, 1};
    put(head, 4);
    for (int i = 0; i < count; i++) {
        uint8_t item[3] = {ids[i], (uint8_t)(sizes[i] >> 8), (uint8_t)sizes[i]};
        put(item, 3);
        put(bodies[i], sizes[i]);
    }
}

static void greet(struct conn *c) {
    char token[80], auth[256];
    if (c->publisher) {
        packet(1, 0, 0, 0, 0);
        return;
    }
    if (!tokens && !(tokens = fopen(options.tokens ? options.tokens : "", "r"))) die("no tokens=FILE");
    if (fscanf(tokens, "%79s", token) != 1) die("too few tokens");
    snprintf(auth, sizeof auth, "{\"client_id\":\"%016lx%08x\",\"timestamp\":%ld,\"token\":\"%s\"}",
             options.run, (unsigned)c->number, options.stamp, token);
    command(c, 2, (const char *[]){"auth", auth});
}

/* Two fields, as an application would ask: a range of prices in one city. */
static void subscribe(struct conn *c) {
    char range[80];
    int low = c->number % options.groups;
    snprintf(range, sizeof range, "{\"use\":2,\"low\":%d,\"high\":%d.5}", low, low);
    command(c, 5, (const char *[]){"sub", "price", range, "city", "{\"use\":1,\"strval\":\"Paris\"}"});
}

static void publish(int group, const char *payload) {
    static uint32_t number;
    char attributes[80];
    uint8_t id[12];
    number++;
    memcpy(id, &number, 4);
    memcpy(id + 4, &options.run, 8); /* an id that was there before would go nowhere */
    int n = snprintf(attributes, sizeof attributes, "{\"price\":%d.25,\"city\":\"Paris\"}", group);
    packet(3, 3, (uint8_t[]){3, 1, 2}, (const void *[]){id, attributes, payload},
           (size_t[]){12, (size_t)n, (size_t)options.size});
}

static size_t answer(struct conn *c, const uint8_t *data, size_t size) {
    if (size < 4) return 0;
    size_t whole = 4 + ((size_t)data[1] << 8 | data[2]);
    if (size < whole) return 0;
    if (data[0] == 1 && !c->up) up(c);
    if (data[0] == 5) die("homing refused a publication");
    return whole;
}

static size_t consume(struct conn *c, const uint8_t *data, size_t size) {
    if (c->publisher) return answer(c, data, size);
    const uint8_t *end = memchr(data, '\n', size);
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 1;
    if (data[0] == '-') die("homing refused something");
    if (data[0] == '+') {
        if (!memcmp(data, "+auth", 5)) subscribe(c);
        else if (!c->up) up(c);
        return head;
    }
    size_t whole = head + strtoul((const char *)data + 1, 0, 10);
    if (size < whole) return 0;
    const char *at = memmem(data + head, whole - head, "\"payload\":\"", 11);
    if (!at) die("a push without a payload");
    delivered(c, at + 11);
    return whole;
}

const struct protocol homing = {"homing", greet, consume, publish};
