/* The load generator's parts: connections that buffer, protocols that parse, a loop that counts.
 *
 * A protocol turns bytes into two calls: up(conn) once a connection can be used, and
 * answered(body) for every report. A worker's side of it answers requests itself, with the
 * body it got. The first eight bytes of a body are the request's number, which comes back.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct buffer {
    uint8_t *data;
    size_t start, end, room;
};

struct conn {
    int fd, number, worker, up, stage, dirty, blocked;
    int interval;  /* ms between a worker's heartbeats, as the broker told it; 0: it did not */
    uint64_t beaten; /* when it last beat */
    struct buffer in, out;
};

struct protocol {
    const char *name;
    void (*greet)(struct conn *);                            /* right after connect */
    size_t (*consume)(struct conn *, const uint8_t *, size_t); /* bytes used; 0: need more */
    void (*request)(struct conn *, const uint8_t *body, size_t size);
    void (*beat)(struct conn *); /* a worker's heartbeat */
};

struct options {
    const char *service;
    const char *fe, *be; /* a port on loopback, or a unix socket's path */
    int workers, clients, inflight, size, credit, envelope, mute, patient;
    long requests;
    double settle, warm, seconds, rate;
};

extern struct options options;
extern const struct protocol mdp0x, mdp01, nats, gearman;

void put(struct conn *, const void *bytes, size_t size);
void up(struct conn *);
void answered(const uint8_t *body, size_t size);
void die(const char *what);
