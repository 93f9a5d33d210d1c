/* One process that is the publisher and every subscriber of a push server, in one epoll loop.
 *
 *   sink PROTOCOL port=7005 pub=7001 [subs=1000] [window=1] [size=128] [groups=1] [filter=0]
 *        [tokens=FILE stamp=UNIX run=NUMBER] [warm=0.3] [seconds=2] [idle=0]
 *
 * PROTOCOL: homing, nats, redis, mqtt. Closed loop: `window` publications are under way, the next
 * leaves when one has reached all whom it is for. With `groups` a publication is for one group of
 * subscribers; where the server cannot tell (filter=1) all get it and the others throw it away.
 * idle=1: connect, subscribe and wait for the end of standard input.
 *
 * Prints `ready` when all have subscribed, `start` when measuring begins, `end {json}` after.
 */
#define _GNU_SOURCE
#include "fanout.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, BUCKETS = 1 << 20, MAX_WINDOW = 4096, COMING = 256 };
#define BUCKET_NS 1000 /* of the latency histogram, which so reaches to one second */

struct options options = {.subs = 1000, .window = 1, .size = 128, .groups = 1, .warm = 0.3, .seconds = 2};

struct slot {
    uint32_t serial;
    int left; /* deliveries that have not come */
    uint64_t sent;
};

static const struct protocol *protocol;
static struct conn *conns, *publisher;
static struct slot slots[MAX_WINDOW];
static int due[MAX_WINDOW], dues; /* slots whose publication has reached all */
static int loop, connected, measuring, next_group;
static uint8_t chunk[CHUNK], *out;
static size_t out_size, out_room;
static char *payload;
static uint32_t histogram[BUCKETS];
static uint64_t deliveries, useful, publications, completed, strays, moment;

void die(const char *what) {
    fprintf(stderr, "sink: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Connections */

void say(struct conn *c, const void *bytes, size_t size) {
    for (const uint8_t *at = bytes; size;) {
        ssize_t n = write(c->fd, at, size);
        if (n < 0 && errno != EAGAIN) die("write");
        if (n > 0) at += n, size -= (size_t)n;
    }
}

void put(const void *bytes, size_t size) {
    if (out_size + size > out_room) {
        out_room = (out_size + size) * 2;
        out = realloc(out, out_room);
        if (!out) die("out of memory");
    }
    memcpy(out + out_size, bytes, size);
    out_size += size;
}

void up(struct conn *c) {
    c->up = 1;
    connected++;
}

static void dial(struct conn *c, int number, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    int on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->number = number;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &e)) die("epoll_ctl");
    protocol->greet(c);
}

static void take(struct conn *c) {
    size_t size = c->held, at = 0;
    if (size) memcpy(chunk, c->rest, size);
    ssize_t n = read(c->fd, chunk + size, CHUNK - size);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        if (!n) errno = 0;
        die("the server closed a connection");
    }
    moment = now();
    size += (size_t)n;
    while (at < size) {
        size_t used = protocol->consume(c, chunk + at, size - at);
        if (!used) break;
        at += used;
    }
    c->held = size - at;
    if (c->held == CHUNK) die("a message larger than the buffer");
    if (c->held) {
        c->rest = realloc(c->rest, c->held);
        memcpy(c->rest, chunk + at, c->held);
    }
}

/* Publications */

static void publish(int slot) {
    struct slot *s = &slots[slot];
    int group = next_group++ % options.groups;
    char head[17];
    snprintf(head, sizeof head, "%04x%08x%04x", slot, ++s->serial, group);
    memcpy(payload, head, 16);
    s->left = options.filter ? options.subs : options.subs / options.groups;
    s->sent = now();
    publications += (uint64_t)measuring;
    protocol->publish(group, payload);
}

static unsigned long hex(const char *at, int digits) {
    char text[9] = {0};
    memcpy(text, at, (size_t)digits);
    return strtoul(text, 0, 16);
}

void delivered(struct conn *c, const char *text) {
    unsigned long slot = hex(text, 4), serial = hex(text + 4, 8), group = hex(text + 12, 4);
    if (slot >= (unsigned long)options.window || slots[slot].serial != serial || !slots[slot].left) {
        strays++;
        return;
    }
    if (measuring) {
        uint64_t bucket = (moment - slots[slot].sent) / BUCKET_NS;
        deliveries++;
        if (group == (unsigned long)(c->number % options.groups)) {
            histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
            useful++;
        }
    }
    if (!--slots[slot].left) {
        completed++;
        due[dues++] = (int)slot;
    }
}

/* The loop */

static void turn_once(int timeout) {
    struct epoll_event events[1024];
    int n = epoll_wait(loop, events, 1024, timeout);
    for (int i = 0; i < n; i++) {
        if (!events[i].data.ptr) exit(0); /* the end of standard input */
        take(events[i].data.ptr);
    }
    while (dues) publish(due[--dues]);
    if (out_size) say(publisher, out, out_size);
    out_size = 0;
}

static void run_for(double seconds) {
    for (uint64_t end = now() + (uint64_t)(seconds * 1e9); now() < end;) turn_once(100);
}

static double percentile(double share) {
    uint64_t seen = 0, wanted = (uint64_t)((double)useful * share);
    for (int i = 0; i < BUCKETS; i++)
        if ((seen += histogram[i]) > wanted) return i * (BUCKET_NS / 1e3);
    return 0;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void measure(void) {
    for (int i = 0; i < options.window; i++) due[dues++] = i;
    run_for(options.warm);
    while (!completed) turn_once(100); /* a busy server's first may take longer */
    double before = cpu();
    uint64_t began = now();
    measuring = 1;
    printf("start\n");
    run_for(options.seconds);
    while (!useful) turn_once(100);
    double seconds = (double)(now() - began) / 1e9;
    printf("end {\"publications\": %lu, \"deliveries\": %lu, \"useful\": %lu, \"seconds\": %.6f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"strays\": %lu, \"sink_cpu\": %.6f}\n",
           publications, deliveries, useful, seconds, percentile(0.5), percentile(0.99), strays, cpu() - before);
}

static void rest(void) {
    static struct epoll_event input = {.events = EPOLLIN | EPOLLHUP};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, 0, &input)) die("standard input must be a pipe");
    for (;;) turn_once(1000);
}

static void parse(int count, char **words) {
    struct { const char *name; int *whole; double *real; } known[] = {
        {"port", &options.port, 0}, {"pub", &options.pub, 0}, {"subs", &options.subs, 0},
        {"window", &options.window, 0}, {"size", &options.size, 0}, {"groups", &options.groups, 0},
        {"filter", &options.filter, 0}, {"idle", &options.idle, 0}, {"warm", 0, &options.warm},
        {"seconds", 0, &options.seconds}};
    for (int i = 0; i < count; i++) {
        char *value = strchr(words[i], '=');
        size_t k = 0, n = sizeof known / sizeof *known;
        if (!value) die("arguments are name=value");
        *value++ = 0;
        if (!strcmp(words[i], "tokens")) options.tokens = value;
        else if (!strcmp(words[i], "stamp")) options.stamp = atol(value);
        else if (!strcmp(words[i], "run")) options.run = atol(value);
        else {
            while (k < n && strcmp(known[k].name, words[i])) k++;
            if (k == n) die(words[i]);
            if (known[k].whole) *known[k].whole = atoi(value);
            else *known[k].real = atof(value);
        }
    }
    if (options.size < 16 || options.window < 1 || options.window > MAX_WINDOW) die("size >= 16, window 1 to 4096");
    if (options.groups < 1 || options.subs % options.groups) die("groups divide subs");
}

static void connect_all(void) {
    for (int i = 0; i < options.subs; i++) {
        dial(&conns[i], i, options.port);
        while (i - connected >= COMING) turn_once(100);
    }
    while (connected < options.subs) turn_once(100);
    publisher->publisher = 1;
    dial(publisher, options.subs, options.pub ? options.pub : options.port);
    while (connected <= options.subs) turn_once(100);
}

int main(int argc, char **argv) {
    const struct protocol *known[] = {&homing, &nats, &redis, &mqtt};
    for (size_t i = 0; argc > 1 && i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i]->name, argv[1])) protocol = known[i];
    if (!protocol) die("usage: sink homing|nats|redis|mqtt port=PORT [name=value…]");
    parse(argc - 2, argv + 2);
    setvbuf(stdout, 0, _IOLBF, 0);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    conns = calloc((size_t)options.subs + 1, sizeof *conns);
    payload = malloc((size_t)options.size + 1);
    loop = epoll_create1(0);
    if (!conns || !payload || loop < 0) die("start");
    memset(payload, 'x', (size_t)options.size);
    payload[options.size] = 0;
    publisher = &conns[options.subs];
    connect_all();
    printf("ready\n");
    if (options.idle) rest();
    measure();
    return 0;
}
