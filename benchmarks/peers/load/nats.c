/* NATS request/reply: workers share a queue group, each client has an inbox. */
#define _GNU_SOURCE
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(struct conn *c, const char *text) {
    put(c, text, strlen(text));
}

static void greet(struct conn *c) {
    char line[256];
    say(c, "CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n");
    if (c->worker)
        snprintf(line, sizeof line, "SUB %s workers 1\r\nPING\r\n", options.service);
    else
        snprintf(line, sizeof line, "SUB _INBOX.%d 1\r\nPING\r\n", c->number);
    say(c, line);
}

static void publish(struct conn *c, const char *subject, const char *reply, const uint8_t *body, size_t size) {
    char line[256];
    int n = snprintf(line, sizeof line, "PUB %s %s%s%zu\r\n", subject, reply, *reply ? " " : "", size);
    put(c, line, (size_t)n);
    put(c, body, size);
    say(c, "\r\n");
}

static void request(struct conn *c, const uint8_t *body, size_t size) {
    char inbox[32];
    snprintf(inbox, sizeof inbox, "_INBOX.%d", c->number);
    publish(c, options.service, inbox, body, size);
}

/* MSG subject sid [reply] size */
static size_t message(struct conn *c, char *line, size_t head, const uint8_t *data, size_t size) {
    char *word[5] = {0}, *rest = line + 4;
    int words = 0;
    while (words < 5 && (word[words] = strsep(&rest, " "))) words++;
    size_t body = (size_t)atol(word[words - 1]);
    if (size < head + body + 2) return 0;
    if (!c->worker)
        answered(data + head, body);
    else if (words == 4 && !options.mute)
        publish(c, word[2], "", data + head, body);
    return head + body + 2;
}

static size_t consume(struct conn *c, const uint8_t *data, size_t size) {
    const uint8_t *end = memchr(data, '\n', size);
    char line[512];
    if (!end) return 0;
    size_t head = (size_t)(end - data) + 1;
    if (!memcmp(data, "MSG ", 4)) {
        size_t text = head - 2 < sizeof line - 1 ? head - 2 : sizeof line - 1;
        memcpy(line, data, text);
        line[text] = 0;
        return message(c, line, head, data, size);
    }
    if (!memcmp(data, "PING", 4)) say(c, "PONG\r\n");
    if (!memcmp(data, "PONG", 4) && !c->up) up(c);
    if (data[0] == '-') die("nats-server refused something");
    return head;
}

static void beat(struct conn *c) {
    (void)c; /* the server's own PING is enough */
}

const struct protocol nats = {"nats", greet, consume, request, beat};
