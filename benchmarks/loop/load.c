/* Load for the loop benchmark: one lean epoll process that holds every peer of the server.
 *
 *   load broker PORT WORKERS CLIENTS INFLIGHT REQUESTS   request -> worker -> report -> client
 *   load fan    PORT SUBSCRIBERS WINDOW PUBLICATIONS     one publisher, many sinks
 *   load idle   PORT CONNECTIONS                         connect, say so, wait for end of stdin
 *
 * A message is two bytes of header (kind, body length) and the body. The first four bytes of
 * a broker body are the client's number, which the server uses as its address. A subscriber's
 * first message comes back to it: then the server knows it, and the measuring may begin.
 * Prints one JSON line: seconds, messages, p50_us.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODY = 64, FAN_BODY = 128, MESSAGE = BODY + 2, FAN_MESSAGE = FAN_BODY + 2 };
enum { MAX_SAMPLES = 1 << 20, EVENTS = 1024, SINK = 1 << 16 };

struct conn {
    int fd, worker;
    uint32_t have;
    char in[1 << 13];
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int dial(int port, int i) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    /* Several loopback addresses, so that ports of one pair never run out. */
    a.sin_addr.s_addr = htonl(0x7f000001 + i % 4);
    if (fd < 0) die("socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void watch(int ep, int fd, void *what) {
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = what};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

static void put(int fd, char kind, uint32_t address, int body) {
    char m[FAN_MESSAGE] = {kind, (char)body};
    memcpy(m + 2, &address, 4);
    if (write(fd, m, body + 2) != body + 2) die("write");
}

static int by_size(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return (x > y) - (x < y);
}

static double samples[MAX_SAMPLES];
static int taken;

static void result(double seconds, long messages) {
    double p50 = 0;
    if (taken) {
        qsort(samples, taken, sizeof *samples, by_size);
        p50 = samples[taken / 2] * 1e6;
    }
    printf("{\"seconds\": %.6f, \"messages\": %ld, \"p50_us\": %.1f}\n", seconds, messages, p50);
    fflush(stdout);
}

static void broker(int port, int workers, int clients, int inflight, long requests) {
    int ep = epoll_create1(0), n = workers + clients;
    struct conn *c = calloc(n, sizeof *c);
    double *asked = calloc(clients, sizeof *asked);
    struct epoll_event events[256];
    for (int i = 0; i < n; i++) {
        c[i].fd = dial(port, 0);
        c[i].worker = i < workers;
        put(c[i].fd, c[i].worker ? 'W' : 'C', i < workers ? i : i - workers, BODY);
        watch(ep, c[i].fd, &c[i]);
    }
    usleep(200000);
    double start = now();
    long sent = 0, done = 0;
    for (; sent < inflight; sent++) {
        asked[sent % clients] = now();
        put(c[workers + sent % clients].fd, 'Q', sent % clients, BODY);
    }
    while (done < requests) {
        int k = epoll_wait(ep, events, 256, -1);
        for (int i = 0; i < k; i++) {
            struct conn *x = events[i].data.ptr;
            char out[sizeof x->in];
            size_t queued = 0;
            ssize_t got = read(x->fd, x->in + x->have, sizeof x->in - x->have);
            if (got <= 0) die("read");
            x->have += got;
            uint32_t at = 0;
            for (; x->have - at >= MESSAGE; at += MESSAGE) {
                memcpy(out + queued, x->in + at, MESSAGE);
                uint32_t client;
                memcpy(&client, x->in + at + 2, 4);
                if (x->worker) {
                    out[queued] = 'R';
                    queued += MESSAGE;
                    continue;
                }
                done++;
                if (taken < MAX_SAMPLES) samples[taken++] = now() - asked[client];
                if (sent >= requests) continue;
                asked[client] = now();
                out[queued] = 'Q';
                queued += MESSAGE;
                sent++;
            }
            memmove(x->in, x->in + at, x->have -= at);
            if (queued && write(x->fd, out, queued) != (ssize_t)queued) die("write");
        }
    }
    result(now() - start, requests);
}

/* Read what there is; returns how many bytes it was. */
static long long drain(int ep, struct epoll_event *events, char *sink) {
    long long bytes = 0;
    int k = epoll_wait(ep, events, EVENTS, -1);
    for (int i = 0; i < k; i++) {
        ssize_t got = read((int)(intptr_t)events[i].data.ptr, sink, SINK);
        if (got <= 0) die("read");
        bytes += got;
    }
    return bytes;
}

static void fan(int port, int subscribers, int window, long publications) {
    int ep = epoll_create1(0);
    struct epoll_event events[EVENTS];
    int publisher = dial(port, 0);
    for (int i = 0; i < subscribers; i++) {
        int fd = dial(port, i);
        put(fd, 'S', i, FAN_BODY);
        watch(ep, fd, (void *)(intptr_t)fd);
    }
    put(publisher, 'P', 0, FAN_BODY);
    static char sink[SINK];
    long long greeted = 0;
    while (greeted < (long long)subscribers * FAN_MESSAGE) greeted += drain(ep, events, sink);
    double start = now();
    long long sent = 0, bytes = 0, all = (long long)publications * subscribers * FAN_MESSAGE;
    while (bytes < all) {
        while (sent < publications && sent - bytes / ((long long)subscribers * FAN_MESSAGE) < window) {
            put(publisher, 'Q', 0, FAN_BODY);
            sent++;
        }
        bytes += drain(ep, events, sink);
    }
    result(now() - start, (long)(publications * subscribers));
}

static void idle(int port, int connections) {
    char echo[FAN_MESSAGE];
    for (int i = 0; i < connections; i++) {
        int fd = dial(port, i);
        put(fd, 'S', i, FAN_BODY);
        if (recv(fd, echo, sizeof echo, MSG_WAITALL) != sizeof echo) die("recv");
    }
    result(0, connections);
    while (getchar() != EOF) {}
}

int main(int n, char **v) {
    if (n == 7 && !strcmp(v[1], "broker"))
        broker(atoi(v[2]), atoi(v[3]), atoi(v[4]), atoi(v[5]), atol(v[6]));
    else if (n == 6 && !strcmp(v[1], "fan"))
        fan(atoi(v[2]), atoi(v[3]), atoi(v[4]), atol(v[5]));
    else if (n == 4 && !strcmp(v[1], "idle"))
        idle(atoi(v[2]), atoi(v[3]));
    else
        return fprintf(stderr, "usage: see the top of load.c\n"), 64;
    return 0;
}
