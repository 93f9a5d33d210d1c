/* Majordomo over ZMTP 3 NULL: homing's dialect 0X and the public 7/MDP v0.1. */
#include <stdio.h>
#include "load.h"
#include <string.h>

enum { MORE = 1, LONG = 2, COMMAND = 4, MAX_FRAMES = 16, GREETING = 64 };
enum { READY = 1, REQUEST = 2, REPORT = 3, HEARTBEAT = 4, REPOST = 6, REPORT_LOCAL = 7, REPORT_CLOUD = 8 };

struct frame {
    const uint8_t *body;
    size_t size;
    int flags;
};

static void put_frame(struct conn *c, int flags, const void *body, size_t size) {
    uint8_t head[9] = {(uint8_t)flags, (uint8_t)size};
    if (size > 255) {
        head[0] |= LONG;
        for (int i = 0; i < 8; i++) head[1 + i] = (uint8_t)(size >> (56 - 8 * i));
    }
    put(c, head, size > 255 ? 9 : 2);
    put(c, body, size);
}

static void put_byte(struct conn *c, int flags, uint8_t value) {
    put_frame(c, flags, &value, 1);
}

static void greet(struct conn *c) {
    uint8_t greeting[GREETING] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 1, 'N', 'U', 'L', 'L'};
    put(c, greeting, GREETING);
}

static void shake(struct conn *c) {
    static const uint8_t ready[] = "\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0";
    put_frame(c, COMMAND, ready, sizeof ready); /* the literal's end is Identity's last zero */
}

/* One frame; 0 if not all of it is there. */
static size_t next(const uint8_t *data, size_t size, struct frame *f) {
    size_t head = 2;
    if (size < 2) return 0;
    f->flags = data[0];
    f->size = data[1];
    if (f->flags & LONG) {
        head = 9;
        if (size < head) return 0;
        f->size = 0;
        for (int i = 1; i < 9; i++) f->size = f->size << 8 | data[i];
    }
    f->body = data + head;
    return size - head < f->size ? 0 : head + f->size;
}

static void command(struct conn *c, struct frame *f) {
    if (f->size >= 7 && !memcmp(f->body, "\4PING", 5)) {
        uint8_t pong[32] = "\4PONG";
        size_t context = f->size - 7 < 16 ? f->size - 7 : 16;
        memcpy(pong + 5, f->body + 7, context);
        put_frame(c, COMMAND, pong, 5 + context);
    } else if (f->size >= 6 && !memcmp(f->body, "\5READY", 6)) {
        c->stage = 2;
    } else if (f->size >= 6 && !memcmp(f->body, "\5ERROR", 6)) {
        die("the broker refused the handshake");
    }
}

/* Greeting, then frames gathered into whole messages; what a dialect does with one is `take`. */
static size_t consume(struct conn *c, const uint8_t *data, size_t size,
                      void (*announce)(struct conn *), void (*take)(struct conn *, struct frame *, int)) {
    struct frame frames[MAX_FRAMES];
    size_t used = 0;
    int count = 0;
    if (c->stage == 0) {
        if (size < GREETING) return 0;
        c->stage = 1;
        shake(c);
        return GREETING;
    }
    do {
        if (count == MAX_FRAMES) die("too many frames");
        size_t step = next(data + used, size - used, &frames[count]);
        if (!step) return 0;
        used += step;
    } while (frames[count++].flags & MORE);
    if (frames[0].flags & COMMAND) {
        command(c, &frames[0]);
        if (c->stage == 2) {
            c->stage = 3;
            if (c->worker) announce(c);
            up(c);
        }
    } else {
        take(c, frames, count);
    }
    return used;
}

static void put_head(struct conn *c, const char *header) {
    put_frame(c, MORE, "", 0);
    put_frame(c, MORE, header, 6);
}

static void copy(struct conn *c, int flags, struct frame *f) {
    put_frame(c, flags, f->body, f->size);
}

static void client_takes(struct frame *frames, int count, int nak) {
    if (nak) {
        fprintf(stderr, "%.*s\n", (int)frames[count - 1].size, (const char *)frames[count - 1].body);
        die("the broker refused a request");
    }
    answered(frames[count - 1].body, frames[count - 1].size);
}

/* 0X */

static void put_decimal(struct conn *c, int flags, int number) {
    char digits[12];
    put_frame(c, flags, digits, (size_t)snprintf(digits, sizeof digits, "%d", number));
}

static void announce0x(struct conn *c) {
    int more = options.credit > 1 || options.patient;
    put_head(c, "MDPW0X");
    put_byte(c, MORE, READY);
    put_frame(c, more ? MORE : 0, options.service, strlen(options.service));
    if (more) put_decimal(c, options.patient ? MORE : 0, options.credit);
    if (options.patient) put_decimal(c, 0, options.patient);
}

static void keep_to(struct conn *c, struct frame *interval) {
    c->interval = 0;
    for (size_t i = 0; i < interval->size; i++) c->interval = c->interval * 10 + interval->body[i] - '0';
    if (!options.patient || c->interval > options.patient) die("an interval that nobody offered");
}

static void take0x(struct conn *c, struct frame *f, int count) {
    if (!c->worker) {
        int at = f[0].size ? 3 : 2; /* an envelope may stand before the empty frame */
        client_takes(f, count, f[at].body[0] == 3);
        return;
    }
    int kind = f[2].body[0];
    if (kind == REQUEST && !options.mute) { /* [] W REQUEST service client [] data */
        put_head(c, "MDPW0X");
        put_byte(c, MORE, REPORT_LOCAL);
        copy(c, MORE, &f[4]);
        put_frame(c, MORE, "", 0);
        copy(c, MORE, &f[3]);
        copy(c, 0, &f[6]);
    } else if (kind == REPOST && !options.mute) { /* [] W REPOST service peer client [] data */
        put_head(c, "MDPW0X");
        put_byte(c, MORE, REPORT_CLOUD);
        copy(c, MORE, &f[5]);
        put_frame(c, MORE, "", 0);
        copy(c, MORE, &f[4]);
        copy(c, MORE, &f[3]);
        copy(c, 0, &f[7]);
    } else if (kind == HEARTBEAT && count > 3) {
        keep_to(c, &f[3]);
    } else if (kind == 5) {
        die("the broker disconnected a worker");
    }
}

static size_t consume0x(struct conn *c, const uint8_t *data, size_t size) {
    return consume(c, data, size, announce0x, take0x);
}

static void request0x(struct conn *c, const uint8_t *body, size_t size) {
    if (options.envelope) put_frame(c, MORE, body, 8);
    put_head(c, "MDPC0X");
    put_frame(c, MORE, options.service, strlen(options.service));
    put_frame(c, 0, body, size);
}

static void beat0x(struct conn *c) {
    put_head(c, "MDPW0X");
    put_byte(c, 0, HEARTBEAT);
}

const struct protocol mdp0x = {"mdp0x", greet, consume0x, request0x, beat0x};

/* 01 */

static void announce01(struct conn *c) {
    put_head(c, "MDPW01");
    put_byte(c, MORE, READY);
    put_frame(c, 0, options.service, strlen(options.service));
}

static void take01(struct conn *c, struct frame *f, int count) {
    if (!c->worker) {
        client_takes(f, count, 0);
    } else if (f[2].body[0] == REQUEST && !options.mute) { /* [] W REQUEST client [] data */
        put_head(c, "MDPW01");
        put_byte(c, MORE, REPORT);
        copy(c, MORE, &f[3]);
        put_frame(c, MORE, "", 0);
        copy(c, 0, &f[5]);
    } else if (f[2].body[0] == 5) {
        die("the broker disconnected a worker");
    }
}

static size_t consume01(struct conn *c, const uint8_t *data, size_t size) {
    return consume(c, data, size, announce01, take01);
}

static void request01(struct conn *c, const uint8_t *body, size_t size) {
    put_head(c, "MDPC01");
    put_frame(c, MORE, options.service, strlen(options.service));
    put_frame(c, 0, body, size);
}

static void beat01(struct conn *c) {
    put_head(c, "MDPW01");
    put_byte(c, 0, HEARTBEAT);
}

const struct protocol mdp01 = {"mdp01", greet, consume01, request01, beat01};
