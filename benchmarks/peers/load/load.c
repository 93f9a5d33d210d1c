/* One process that is every client and every worker of a broker, in one epoll loop.
 *
 *   load PROTOCOL fe=5555 be=5556 [workers=4] [clients=4] [inflight=100] [size=64] [credit=1]
 *        [envelope=0] [settle=0.2] [warm=0.3] [seconds=2] [rate=0] [mute=0] [requests=0] [patient=0]
 *
 * PROTOCOL: mdp0x, mdp01, nats, gearman. fe and be are ports on loopback, or paths of unix sockets. Closed loop with `inflight` requests under way, or
 * open loop with `rate` requests a second, latency then counted from when each was due.
 * mute=1: workers never answer, and `requests` are sent once (0: none), so that what the
 * broker holds can be weighed; the load then waits for the end of its standard input.
 * patient=MS: workers of mdp0x say that they can keep to heartbeats as slow as that, and do.
 *
 * Prints `ready` when all are connected, `start` when measuring begins, `end {json}` after.
 */
#define _GNU_SOURCE
#include "load.h"
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
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, BUCKETS = 1 << 20, MAX_SLOTS = 1 << 16 };
#define BEAT 2.5 /* seconds between a worker's heartbeats, as the protocol has it */
#define BUCKET_NS 250 /* of the latency histogram, which so reaches to 0.26 s */

struct options options = {.service = "echo", .fe = "5555", .be = "5556", .workers = 4, .clients = 4, .inflight = 100, .size = 64,
                          .credit = 1, .settle = 0.2, .warm = 0.3, .seconds = 2};

static const struct protocol *protocol;
static struct conn *conns, **dirty;
static int total, connected, dirties, loop, measuring;
static uint32_t histogram[BUCKETS];
static uint64_t starts[MAX_SLOTS];
static uint32_t serials[MAX_SLOTS], idle[MAX_SLOTS];
static int idles, turn;
static uint64_t done, strays, dropped;
static uint8_t *body;

void die(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Buffers and connections */

static void reserve(struct buffer *b, size_t size) {
    if (b->room - b->end >= size) return;
    if (b->start) {
        memmove(b->data, b->data + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
    }
    if (b->room - b->end >= size) return;
    b->room = (b->end + size) * 2;
    b->data = realloc(b->data, b->room);
    if (!b->data) die("out of memory");
}

void put(struct conn *c, const void *bytes, size_t size) {
    reserve(&c->out, size);
    memcpy(c->out.data + c->out.end, bytes, size);
    c->out.end += size;
    if (!c->dirty) {
        c->dirty = 1;
        dirty[dirties++] = c;
    }
}

static void watch(struct conn *c, int how, uint32_t events) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(loop, how, c->fd, &e)) die("epoll_ctl");
}

static void flush(struct conn *c) {
    struct buffer *b = &c->out;
    while (b->start < b->end) {
        ssize_t n = write(c->fd, b->data + b->start, b->end - b->start);
        if (n < 0 && errno == EAGAIN) {
            if (!c->blocked) watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            c->blocked = 1;
            return;
        }
        if (n < 0) die("write");
        b->start += (size_t)n;
    }
    b->start = b->end = 0;
    if (c->blocked) watch(c, EPOLL_CTL_MOD, EPOLLIN);
    c->blocked = 0;
}

static void flush_all(void) {
    for (int i = 0; i < dirties; i++) {
        dirty[i]->dirty = 0;
        flush(dirty[i]);
    }
    dirties = 0;
}

static void take(struct conn *c) {
    struct buffer *b = &c->in;
    reserve(b, CHUNK);
    ssize_t n = read(c->fd, b->data + b->end, b->room - b->end);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        if (!n) errno = 0;
        die("the broker closed a connection");
    }
    b->end += (size_t)n;
    while (b->start < b->end) {
        size_t used = protocol->consume(c, b->data + b->start, b->end - b->start);
        if (!used) break;
        b->start += used;
    }
    if (b->start == b->end) b->start = b->end = 0;
    if (c->up && !b->end && b->room > CHUNK * 4) { /* one huge message must not stay for ever */
        free(b->data);
        *b = (struct buffer){0};
    }
}

static int connected_to(const char *where) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(where))};
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int local = !!strchr(where, '/'), on = 1, fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(path.sun_path, sizeof path.sun_path, "%s", where);
    if (fd < 0 || connect(fd, local ? (struct sockaddr *)&path : (struct sockaddr *)&a, local ? sizeof path : sizeof a))
        die("connect");
    if (!local) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void dial(struct conn *c, int number, const char *where, int worker) {
    c->number = number;
    c->worker = worker;
    c->fd = connected_to(where);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
    protocol->greet(c);
}

void up(struct conn *c) {
    c->up = 1;
    connected++;
}

/* Requests and answers */

static void request(uint32_t slot, uint64_t due) {
    uint32_t number[2] = {slot, ++serials[slot]};
    struct conn *c = &conns[options.workers + turn++ % options.clients];
    memcpy(body, number, 8);
    starts[slot] = due;
    protocol->request(c, body, (size_t)options.size);
}

void answered(const uint8_t *data, size_t size) {
    uint32_t number[2];
    if (size != (size_t)options.size) die("an answer of the wrong size");
    memcpy(number, data, 8);
    if (number[0] >= MAX_SLOTS || number[1] != serials[number[0]]) {
        strays++;
        return;
    }
    uint64_t at = now();
    if (measuring) {
        uint64_t bucket = (at - starts[number[0]]) / BUCKET_NS;
        histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
        done++;
    }
    if (options.rate > 0) {
        serials[number[0]]++;
        idle[idles++] = number[0];
    } else {
        request(number[0], at);
    }
}

static void send_due(uint64_t *next, uint64_t at) {
    uint64_t gap = (uint64_t)(1e9 / options.rate);
    for (; *next <= at; *next += gap) {
        if (idles)
            request(idle[--idles], *next);
        else
            dropped++;
    }
}

/* The loop */

static void turn_once(int timeout) {
    struct epoll_event events[512];
    int n = epoll_wait(loop, events, 512, timeout);
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;
        if (!c) exit(0); /* the end of standard input */
        if (events[i].events & EPOLLOUT) flush(c);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take(c);
    }
    flush_all();
}

/* A worker's turn to beat; one that was told a slower interval keeps silent until it is over. */
static void beat(struct conn *c, uint64_t at) {
    if ((double)(at - c->beaten) / 1e9 < c->interval / 1e3 - BEAT / 2) return;
    c->beaten = at;
    protocol->beat(c);
}

/* Each worker's turn every BEAT seconds, theirs spread evenly as in a real fleet. */
static void beats(uint64_t at) {
    static uint64_t last;
    static double due;
    static int next;
    if (last) due += (double)(at - last) / 1e9 / BEAT * options.workers;
    last = at;
    for (; due >= 1; due--, next = (next + 1) % options.workers)
        if (conns[next].up) beat(&conns[next], at);
    flush_all();
}

static void run_for(double seconds, uint64_t *next) {
    uint64_t end = now() + (uint64_t)(seconds * 1e9);
    for (uint64_t at; (at = now()) < end;) {
        beats(at);
        if (options.rate > 0) send_due(next, at);
        flush_all();
        turn_once(options.rate > 0 ? 0 : 100);
    }
}

static double percentile(double share) {
    uint64_t seen = 0, wanted = (uint64_t)((double)done * share);
    for (int i = 0; i < BUCKETS; i++)
        if ((seen += histogram[i]) > wanted) return i * BUCKET_NS / 1e3;
    return 0;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void measure(void) {
    uint64_t next = now();
    if (options.rate > 0)
        for (int i = 0; i < MAX_SLOTS; i++) idle[idles++] = (uint32_t)i;
    else
        for (int i = 0; i < options.inflight; i++) request((uint32_t)i, next);
    run_for(options.warm, &next);
    double before = cpu();
    uint64_t began = now();
    measuring = 1;
    printf("start\n");
    run_for(options.seconds, &next);
    double seconds = (double)(now() - began) / 1e9;
    printf("end {\"requests\": %lu, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
           "\"strays\": %lu, \"dropped\": %lu, \"load_cpu\": %.6f}\n",
           done, seconds, percentile(0.5), percentile(0.99), strays, dropped, cpu() - before);
}

/* Until no connection has more than so many bytes to send; the workers live on meanwhile. */
static void drain(size_t most) {
    for (int waiting = 1; waiting;) {
        beats(now());
        turn_once(most ? 0 : 10);
        waiting = 0;
        for (int i = 0; i < total; i++) waiting |= conns[i].out.end - conns[i].out.start > most;
    }
}

static void weigh(void) {
    static struct epoll_event input = {.events = EPOLLIN | EPOLLHUP};
    for (long i = 0; i < options.requests; i++) {
        request((uint32_t)(i % MAX_SLOTS), 0);
        if (i % 1000 == 999) drain(1 << 20);
    }
    drain(0);
    printf("start\n");
    if (epoll_ctl(loop, EPOLL_CTL_ADD, 0, &input)) die("standard input must be a pipe");
    for (;;) {
        beats(now());
        turn_once(20);
    }
}

static void parse(int count, char **words) {
    struct { const char *name; int *whole; double *real; } known[] = {
        {"workers", &options.workers, 0},
        {"clients", &options.clients, 0}, {"inflight", &options.inflight, 0}, {"size", &options.size, 0},
        {"credit", &options.credit, 0}, {"envelope", &options.envelope, 0}, {"mute", &options.mute, 0}, {"patient", &options.patient, 0},
        {"settle", 0, &options.settle}, {"warm", 0, &options.warm}, {"seconds", 0, &options.seconds}, {"rate", 0, &options.rate}};
    for (int i = 0; i < count; i++) {
        char *value = strchr(words[i], '=');
        size_t k = 0, n = sizeof known / sizeof *known;
        if (!value) die("arguments are name=value");
        *value++ = 0;
        if (!strcmp(words[i], "requests")) {
            options.requests = atol(value);
            continue;
        }
        if (!strcmp(words[i], "fe") || !strcmp(words[i], "be")) {
            *(words[i][0] == 'f' ? &options.fe : &options.be) = value;
            continue;
        }
        while (k < n && strcmp(known[k].name, words[i])) k++;
        if (k == n) die(words[i]);
        if (known[k].whole) *known[k].whole = atoi(value);
        else *known[k].real = atof(value);
    }
    if (options.size < 8 || options.inflight > MAX_SLOTS) die("size >= 8 and inflight <= 65536");
}

int main(int argc, char **argv) {
    const struct protocol *known[] = {&mdp0x, &mdp01, &nats, &gearman};
    for (size_t i = 0; argc > 1 && i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i]->name, argv[1])) protocol = known[i];
    if (!protocol) die("usage: load mdp0x|mdp01|nats|gearman fe=PORT|PATH be=PORT|PATH [name=value…]");
    parse(argc - 2, argv + 2);
    setvbuf(stdout, 0, _IOLBF, 0);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    total = options.workers + options.clients;
    conns = calloc((size_t)total, sizeof *conns);
    dirty = calloc((size_t)total, sizeof *dirty);
    body = calloc(1, (size_t)options.size);
    loop = epoll_create1(0);
    if (!conns || !dirty || !body || loop < 0) die("start");
    for (int i = 0; i < total; i++) {
        dial(&conns[i], i, i < options.workers ? options.be : options.fe, i < options.workers);
        if (i % 64 == 63) turn_once(0);
    }
    while (connected < total) turn_once(100);
    for (uint64_t end = now() + (uint64_t)(options.settle * 1e9); now() < end;) turn_once(10);
    printf("ready\n");
    if (options.mute) weigh();
    measure();
    return 0;
}
