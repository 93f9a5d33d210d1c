/* The floor: what the machine itself asks for a request, in CPU and in time.
 *
 *   floor PORT|PATH [CREDIT]
 *
 * A Majordomo (7/MDP v0.1) that is next to nothing: one epoll loop in C, one read of a socket that
 * is ready, one write of one that was written to a turn, one service, no liveness, no limits, no
 * journal. A worker holds CREDIT requests at once, or 1. What it costs is the kernel's sockets: less is
 * possible only by letting peers wait, so that more travels with a call. A worker's heartbeat is answered
 * at once, while its socket is at hand.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MORE = 1, LONG = 2, COMMAND = 4, GREETING = 64, CHUNK = 256 << 10, EVENTS = 512, MOST = 1 << 16 };
enum { READY = 1, REPLY = 3, HEARTBEAT = 4 };

struct buffer {
    uint8_t *data;
    size_t start, end, room;
};

struct conn {
    int fd, stage, dirty, room; /* of a worker: requests it would take */
    struct buffer in, out;
    struct conn *next; /* in the line of workers with room */
};

struct request {
    struct request *next;
    uint32_t client;
    size_t size;
    uint8_t frame[];
};

static struct conn *conns[MOST], *free_first, *free_last, *dirty[MOST];
static struct request *first, *last;
static int dirties, credit = 1;

static void put(struct conn *c, const void *bytes, size_t size) {
    struct buffer *b = &c->out;
    if (b->end + size > b->room) {
        b->room = (b->end + size) * 2;
        b->data = realloc(b->data, b->room);
    }
    memcpy(b->data + b->end, bytes, size);
    b->end += size;
    if (!c->dirty) {
        c->dirty = 1;
        dirty[dirties++] = c;
    }
}

static void hand(struct conn *worker, uint32_t client, const uint8_t *frame, size_t size) {
    put(worker, "\1\0\1\6MDPW01\1\1\2\1\4", 15);
    put(worker, &client, 4);
    put(worker, "\1\0", 2);
    put(worker, frame, size);
}

static void stand_in_line(struct conn *worker) {
    worker->next = 0;
    if (free_first) free_last->next = worker;
    else free_first = worker;
    free_last = worker;
}

static void requested(struct conn *c, const uint8_t *frame, size_t size) {
    if (free_first) {
        struct conn *worker = free_first;
        free_first = worker->next;
        if (--worker->room) stand_in_line(worker);
        hand(worker, (uint32_t)c->fd, frame, size);
        return;
    }
    struct request *r = malloc(sizeof *r + size);
    *r = (struct request){.client = (uint32_t)c->fd, .size = size};
    memcpy(r->frame, frame, size);
    if (first) last->next = r;
    else first = r;
    last = r;
}

static void ready(struct conn *worker) {
    struct request *r = first;
    if (r) {
        first = r->next;
        hand(worker, r->client, r->frame, r->size);
        free(r);
        return;
    }
    if (!worker->room++) stand_in_line(worker);
}

static void message(struct conn *c, const uint8_t *frames[], int count, const uint8_t *end) {
    const uint8_t *body = frames[count - 1];
    if (frames[1][5] == 'C') { /* [] MDPC01 service data */
        requested(c, body, (size_t)(end - body));
    } else if (frames[2][2] == READY) { /* [] MDPW01 READY service */
        for (int room = credit; room > 0; room--) ready(c);
    } else if (frames[2][2] == REPLY) { /* [] MDPW01 REPLY client [] data */
        uint32_t client;
        memcpy(&client, frames[3] + 2, 4);
        put(conns[client], "\1\0\1\6MDPC01\1\4echo", 16);
        put(conns[client], body, (size_t)(end - body));
        ready(c);
    } else if (frames[2][2] == HEARTBEAT) {
        put(c, "\1\0\1\6MDPW01\0\1\4", 13);
    }
}

/* One message; the bytes it had, 0 if it is not all there. */
static size_t consume(struct conn *c, const uint8_t *data, size_t size) {
    const uint8_t *frames[16], *at = data, *end = data + size;
    int count = 0, flags;
    if (c->stage == 0) {
        static const uint8_t shake[] = "\4\51\5READY\13Socket-Type\0\0\0\6ROUTER\10Identity\0\0\0";
        if (size < GREETING) return 0;
        c->stage = 1;
        put(c, shake, sizeof shake);
        return GREETING;
    }
    do {
        if (end - at < 2 || count == 16) return 0;
        flags = at[0];
        size_t head = flags & LONG ? 9 : 2, length = at[1];
        if (flags & LONG) {
            if (end - at < 9) return 0;
            length = 0;
            for (int i = 1; i < 9; i++) length = length << 8 | at[i];
        }
        if ((size_t)(end - at) < head + length) return 0;
        frames[count++] = at;
        at += head + length;
    } while (flags & MORE);
    if (!(flags & COMMAND)) message(c, frames, count, at);
    return (size_t)(at - data);
}

static void gone(struct conn *c) { /* the load ends all at once: nothing more is expected of us */
    close(c->fd);
    conns[c->fd] = 0;
}

static void take(struct conn *c) {
    struct buffer *b = &c->in;
    if (b->room - b->end < CHUNK) {
        b->room = b->end + CHUNK;
        b->data = realloc(b->data, b->room);
    }
    ssize_t n = read(c->fd, b->data + b->end, b->room - b->end);
    if (n <= 0) {
        gone(c);
        return;
    }
    b->end += (size_t)n;
    for (size_t used; b->start < b->end; b->start += used)
        if (!(used = consume(c, b->data + b->start, b->end - b->start))) break;
    memmove(b->data, b->data + b->start, b->end - b->start);
    b->end -= b->start;
    b->start = 0;
}

static void flush_all(void) {
    int kept = 0;
    for (int i = 0; i < dirties; i++) {
        struct conn *c = dirty[i];
        ssize_t n = write(c->fd, c->out.data + c->out.start, c->out.end - c->out.start);
        if (n > 0) c->out.start += (size_t)n;
        if (n > 0 && c->out.start < c->out.end) {
            dirty[kept++] = c;
            continue;
        }
        c->dirty = 0;
        c->out.start = c->out.end = 0;
    }
    dirties = kept;
}

static void accept_one(int listener, int loop) {
    int fd = accept4(listener, 0, 0, SOCK_NONBLOCK), on = 1;
    if (fd < 0 || fd >= MOST) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* a unix socket knows no delay */
    conns[fd] = calloc(1, sizeof **conns);
    conns[fd]->fd = fd;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = conns[fd]};
    epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e);
    uint8_t greeting[GREETING] = {0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    put(conns[fd], greeting, GREETING);
}

/* At a port on loopback, or at a path. */
static int listening(const char *where) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int local = !!strchr(where, '/'), on = 1, fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    a.sin_port = htons((uint16_t)atoi(where));
    snprintf(path.sun_path, sizeof path.sun_path, "%s", where);
    if (!local) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, local ? (struct sockaddr *)&path : (struct sockaddr *)&a, local ? sizeof path : sizeof a)) return -1;
    return listen(fd, 4096) ? -1 : fd;
}

int main(int argc, char **argv) {
    struct epoll_event events[EVENTS], e = {.events = EPOLLIN};
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN); /* over a unix socket who hung up is known at the first write */
    if (argc > 2) credit = atoi(argv[2]);
    int listener = listening(argc > 1 ? argv[1] : "0"), loop = epoll_create1(0);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (listener < 0) return perror("floor"), 1;
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(loop, events, EVENTS, dirties ? 0 : -1);
        for (int i = 0; i < n; i++) {
            if (!events[i].data.ptr) accept_one(listener, loop);
            else take(events[i].data.ptr);
        }
        flush_all();
    }
}
