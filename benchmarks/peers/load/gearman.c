/* Gearman's binary protocol: a worker grabs one job, completes it, grabs the next. */
#include "load.h"
#include <arpa/inet.h>
#include <string.h>

enum { CAN_DO = 1, PRE_SLEEP = 4, NOOP = 6, SUBMIT_JOB = 7, GRAB_JOB = 9, NO_JOB = 10,
       JOB_ASSIGN = 11, WORK_COMPLETE = 13, ECHO_REQ = 16, ECHO_RES = 17, ERROR = 19 };
enum { HEAD = 12 };

static void packet(struct conn *c, uint32_t type, size_t size) {
    uint32_t head[3] = {0, htonl(type), htonl((uint32_t)size)};
    memcpy(head, "\0REQ", 4);
    put(c, head, HEAD);
}

static void greet(struct conn *c) {
    if (c->worker) {
        packet(c, CAN_DO, strlen(options.service));
        put(c, options.service, strlen(options.service));
    }
    packet(c, ECHO_REQ, 2);
    put(c, "up", 2);
}

static void assigned(struct conn *c, const uint8_t *body, size_t size) {
    const uint8_t *name = memchr(body, 0, size);
    size_t handle = (size_t)(name - body) + 1; /* with its zero */
    const uint8_t *data = memchr(body + handle, 0, size - handle);
    size_t skip = (size_t)(data - body) + 1;
    if (options.mute) return;
    packet(c, WORK_COMPLETE, handle + size - skip);
    put(c, body, handle);
    put(c, body + skip, size - skip);
    packet(c, GRAB_JOB, 0);
}

static void completed(const uint8_t *body, size_t size) {
    const uint8_t *end = memchr(body, 0, size);
    size_t skip = (size_t)(end - body) + 1;
    answered(body + skip, size - skip);
}

static size_t consume(struct conn *c, const uint8_t *data, size_t size) {
    uint32_t head[3];
    if (size < HEAD) return 0;
    memcpy(head, data, HEAD);
    size_t body = ntohl(head[2]);
    if (size < HEAD + body) return 0;
    switch (ntohl(head[1])) {
    case ECHO_RES:
        if (c->worker) packet(c, GRAB_JOB, 0);
        up(c);
        break;
    case NOOP: packet(c, GRAB_JOB, 0); break;
    case NO_JOB: packet(c, PRE_SLEEP, 0); break;
    case JOB_ASSIGN: assigned(c, data + HEAD, body); break;
    case WORK_COMPLETE: completed(data + HEAD, body); break;
    case ERROR: die("gearmand refused something");
    }
    return HEAD + body;
}

static void request(struct conn *c, const uint8_t *body, size_t size) {
    size_t name = strlen(options.service) + 1;
    packet(c, SUBMIT_JOB, name + 1 + size);
    put(c, options.service, name);
    put(c, "", 1); /* no unique id: no coalescing */
    put(c, body, size);
}

static void beat(struct conn *c) {
    (void)c; /* gearmand asks for none */
}

const struct protocol gearman = {"gearman", greet, consume, request, beat};
