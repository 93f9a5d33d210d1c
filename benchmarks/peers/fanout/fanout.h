/* The fan-out sink's parts: a loop that counts deliveries, protocols that parse them.
 *
 * A protocol turns bytes into two calls: up(conn) once a connection can be used, and
 * delivered(conn, payload) for every publication that reaches a subscriber. A payload begins with
 * sixteen hex digits (slot, serial, group) and goes through as the text it is.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct conn {
    int fd, number, publisher, up;
    uint8_t *rest; /* the beginning of a message whose end has not come */
    size_t held;
};

struct protocol {
    const char *name;
    void (*greet)(struct conn *);                              /* right after connect */
    size_t (*consume)(struct conn *, const uint8_t *, size_t); /* bytes used; 0: need more */
    void (*publish)(int group, const char *payload);           /* by put() */
};

struct options {
    const char *tokens; /* homing: a file with one token a line */
    long stamp;         /* and the time they were made for */
    long run;           /* homing: whose clients and messages these are */
    int port, pub, subs, window, size, groups, filter, idle;
    double warm, seconds;
};

extern struct options options;
extern const struct protocol homing, nats, redis, mqtt;

void say(struct conn *, const void *bytes, size_t size);
void put(const void *bytes, size_t size); /* to the publisher's connection, once a turn */
void up(struct conn *);
void delivered(struct conn *, const char *payload);
void die(const char *what);
