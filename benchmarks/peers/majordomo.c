/* The yardstick: a Majordomo broker (7/MDP v0.1) in C on libzmq, as fast as that gets.
 *
 *   majordomo PORT|PATH [heartbeat]
 *
 * One ROUTER for clients and workers, frames forwarded as zmq_msg_t without a copy, every
 * message that waits drained before the next poll, O(1) look-ups. With `heartbeat` workers are
 * sent one every 2.5 s and dropped after three silent intervals; a lost worker's request is
 * lost with it, as in the specification. No limits, no journal, no deadlines.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

enum { TABLE = 1 << 16, MAX_FRAMES = 32, INTERVAL_MS = 2500, LIVENESS = 3 };
enum { READY = 1, REQUEST = 2, REPLY = 3, HEARTBEAT = 4, DISCONNECT = 5 };

struct request {
    struct request *next;
    int frames;
    zmq_msg_t client, data[];
};

struct service {
    char name[256];
    size_t size;
    struct worker *idle_first, *idle_last;
    struct request *first, *last;
    struct service *next;
};

struct worker {
    uint8_t id[256];
    size_t size;
    struct service *service;
    int idle;
    int64_t expiry;
    struct worker *before, *after; /* in its service's queue of idle workers */
    struct worker *next;           /* in the table's chain */
};

static void *router;
static struct worker *workers[TABLE];
static struct service *services[TABLE];

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint32_t hash(const void *key, size_t size) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < size; i++) h = (h ^ ((const uint8_t *)key)[i]) * 16777619u;
    return h % TABLE;
}

static struct worker *find_worker(zmq_msg_t *id) {
    struct worker *w = workers[hash(zmq_msg_data(id), zmq_msg_size(id))];
    while (w && (w->size != zmq_msg_size(id) || memcmp(w->id, zmq_msg_data(id), w->size))) w = w->next;
    return w;
}

static struct service *need_service(zmq_msg_t *name) {
    size_t size = zmq_msg_size(name) < 256 ? zmq_msg_size(name) : 255;
    uint32_t at = hash(zmq_msg_data(name), size);
    struct service *s = services[at];
    while (s && (s->size != size || memcmp(s->name, zmq_msg_data(name), size))) s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        memcpy(s->name, zmq_msg_data(name), s->size = size);
        s->next = services[at];
        services[at] = s;
    }
    return s;
}

static void send_bytes(const void *bytes, size_t size, int flags) {
    zmq_send(router, bytes, size, flags | ZMQ_DONTWAIT);
}

static void send_head(const void *id, size_t size, const char *header) {
    send_bytes(id, size, ZMQ_SNDMORE);
    send_bytes("", 0, ZMQ_SNDMORE);
    send_bytes(header, 6, ZMQ_SNDMORE);
}

static void send_frames(zmq_msg_t *frames, int count) {
    for (int i = 0; i < count; i++)
        if (zmq_msg_send(&frames[i], router, ZMQ_DONTWAIT | (i + 1 < count ? ZMQ_SNDMORE : 0)) < 0)
            zmq_msg_close(&frames[i]);
}

static void unlink_idle(struct worker *w) {
    struct service *s = w->service;
    if (!w->idle) return;
    *(w->before ? &w->before->after : &s->idle_first) = w->after;
    *(w->after ? &w->after->before : &s->idle_last) = w->before;
    w->idle = 0;
}

static void give(struct worker *w, zmq_msg_t *client, zmq_msg_t *data, int frames) {
    uint8_t command = REQUEST;
    unlink_idle(w);
    send_head(w->id, w->size, "MDPW01");
    send_bytes(&command, 1, ZMQ_SNDMORE);
    zmq_msg_send(client, router, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    send_bytes("", 0, ZMQ_SNDMORE);
    send_frames(data, frames);
}

static void rest(struct worker *w) {
    struct service *s = w->service;
    struct request *r = s->first;
    if (r) {
        if (!(s->first = r->next)) s->last = NULL;
        give(w, &r->client, r->data, r->frames);
        free(r);
    } else if (!w->idle) {
        w->idle = 1;
        w->after = NULL;
        w->before = s->idle_last;
        *(s->idle_last ? &s->idle_last->after : &s->idle_first) = w;
        s->idle_last = w;
    }
}

static void forget(struct worker *w) {
    struct worker **at = &workers[hash(w->id, w->size)];
    unlink_idle(w);
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    free(w);
}

/* [client] [] [MDPC01] [service] [data…] */
static void from_client(zmq_msg_t *f, int count) {
    if (count < 5) return;
    struct service *s = need_service(&f[3]);
    if (s->idle_first) {
        give(s->idle_first, &f[0], &f[4], count - 4);
        return;
    }
    struct request *r = malloc(sizeof *r + (size_t)(count - 4) * sizeof *r->data);
    zmq_msg_init(&r->client);
    zmq_msg_move(&r->client, &f[0]);
    r->frames = count - 4;
    r->next = NULL;
    for (int i = 0; i < r->frames; i++) {
        zmq_msg_init(&r->data[i]);
        zmq_msg_move(&r->data[i], &f[4 + i]);
    }
    *(s->last ? &s->last->next : &s->first) = r;
    s->last = r;
}

static void announce(zmq_msg_t *f, int count) {
    if (count < 5) return;
    struct worker *w = calloc(1, sizeof *w);
    memcpy(w->id, zmq_msg_data(&f[0]), w->size = zmq_msg_size(&f[0]));
    uint32_t at = hash(w->id, w->size);
    w->service = need_service(&f[4]);
    w->next = workers[at];
    workers[at] = w;
    w->expiry = now_ms() + INTERVAL_MS * LIVENESS;
    rest(w);
}

/* [worker] [] [MDPW01] [command] … */
static void from_worker(zmq_msg_t *f, int count) {
    struct worker *w = find_worker(&f[0]);
    int command = count > 3 && zmq_msg_size(&f[3]) ? *(uint8_t *)zmq_msg_data(&f[3]) : 0;
    if (command == READY && !w) {
        announce(f, count);
    } else if (!w) {
        uint8_t disconnect = DISCONNECT;
        send_head(zmq_msg_data(&f[0]), zmq_msg_size(&f[0]), "MDPW01");
        send_bytes(&disconnect, 1, 0);
    } else if (command == REPLY && count > 6) { /* … [client] [] [data…] */
        send_head(zmq_msg_data(&f[4]), zmq_msg_size(&f[4]), "MDPC01");
        send_bytes(w->service->name, w->service->size, ZMQ_SNDMORE);
        send_frames(&f[6], count - 6);
        w->expiry = now_ms() + INTERVAL_MS * LIVENESS;
        rest(w);
    } else if (command == HEARTBEAT) {
        w->expiry = now_ms() + INTERVAL_MS * LIVENESS;
    } else {
        forget(w);
    }
}

static int receive(zmq_msg_t *frames) {
    int count = 0;
    do {
        if (count == MAX_FRAMES) {
            fprintf(stderr, "majordomo: too many frames\n");
            exit(1);
        }
        zmq_msg_init(&frames[count]);
        if (zmq_msg_recv(&frames[count], router, ZMQ_DONTWAIT) < 0) return 0;
    } while (zmq_msg_more(&frames[count++]));
    return count;
}

static void drain(void) {
    zmq_msg_t frames[MAX_FRAMES];
    for (int count; (count = receive(frames));) {
        if (count > 3 && zmq_msg_size(&frames[2]) == 6) {
            const char *header = zmq_msg_data(&frames[2]);
            if (!memcmp(header, "MDPC01", 6)) from_client(frames, count);
            if (!memcmp(header, "MDPW01", 6)) from_worker(frames, count);
        }
        for (int i = 0; i < count; i++) zmq_msg_close(&frames[i]);
    }
}

static void beat(int64_t now) {
    uint8_t heartbeat = HEARTBEAT;
    for (int i = 0; i < TABLE; i++)
        for (struct worker *w = workers[i], *next; w; w = next) {
            next = w->next;
            if (w->expiry < now) {
                forget(w);
                continue;
            }
            send_head(w->id, w->size, "MDPW01");
            send_bytes(&heartbeat, 1, 0);
        }
}

int main(int argc, char **argv) {
    char endpoint[128];
    const char *where = argc > 1 ? argv[1] : "5555";
    int none = 0, beating = argc > 2 && !strcmp(argv[2], "heartbeat");
    int64_t next = now_ms() + INTERVAL_MS;
    void *context = zmq_ctx_new();
    router = zmq_socket(context, ZMQ_ROUTER);
    zmq_setsockopt(router, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(router, ZMQ_RCVHWM, &none, sizeof none);
    snprintf(endpoint, sizeof endpoint, strchr(where, '/') ? "ipc://%s" : "tcp://127.0.0.1:%s", where);
    if (zmq_bind(router, endpoint)) {
        fprintf(stderr, "majordomo: %s: %s\n", endpoint, zmq_strerror(zmq_errno()));
        return 1;
    }
    for (;;) {
        zmq_pollitem_t item = {router, 0, ZMQ_POLLIN, 0};
        if (zmq_poll(&item, 1, beating ? INTERVAL_MS / 2 : -1) < 0) return 1;
        drain();
        if (beating && now_ms() >= next) {
            beat(now_ms());
            next = now_ms() + INTERVAL_MS;
        }
    }
}
