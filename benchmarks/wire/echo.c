/* Load for the ROUTER-echo benchmark: DEALERs that speak ZMTP 3.1 themselves, in one epoll loop.
 *
 *   echo PORT CONNECTIONS INFLIGHT BODY ROUNDTRIPS
 *
 * Every connection keeps INFLIGHT / CONNECTIONS one-frame messages of BODY bytes on the way (the
 * first connections one more where it does not divide). An echo has the size of what was
 * sent, so answers are counted by bytes. Prints one JSON line: seconds, messages.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
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

enum { GREETING = 64, CHUNK = 1 << 18 };

struct conn {
    int fd;
    long window, got;
};

static char chunk[CHUNK], *burst;
static long size, left, answered;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void send_all(int fd, const char *data, long length) {
    while (length > 0) {
        ssize_t n = write(fd, data, length);
        if (n <= 0) die("write");
        data += n, length -= n;
    }
}

static void read_all(int fd, char *data, long length) {
    while (length > 0) {
        ssize_t n = read(fd, data, length);
        if (n <= 0) die("read");
        data += n, length -= n;
    }
}

/* Greeting and READY both ways, blocking; the peer's READY is a short command. */
static void shake(int fd) {
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06" "DEALER";
    char greeting[GREETING] = {0}, theirs[GREETING + 256];
    greeting[0] = (char)0xff, greeting[9] = 0x7f, greeting[10] = 3, greeting[11] = 1;
    memcpy(greeting + 12, "NULL", 4);
    send_all(fd, greeting, GREETING);
    send_all(fd, ready, sizeof ready - 1);
    read_all(fd, theirs, GREETING + 2);
    read_all(fd, theirs, (uint8_t)theirs[GREETING + 1]);
}

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    shake(fd);
    return fd;
}

static void ask(struct conn *c, long count) {
    if (count > left) count = left;
    left -= count;
    send_all(c->fd, burst, count * size);
}

static void make_burst(long body, long most) {
    size = body + (body > 255 ? 9 : 2);
    burst = calloc(most, size);
    for (long i = 0; i < most; i++) {
        char *at = burst + i * size;
        if (body > 255) {
            at[0] = 2;
            for (int b = 0; b < 8; b++) at[1 + b] = (char)(body >> (56 - 8 * b));
        } else {
            at[1] = (char)body;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) return fprintf(stderr, "usage: echo PORT CONNECTIONS INFLIGHT BODY ROUNDTRIPS\n"), 2;
    int port = atoi(argv[1]), count = atoi(argv[2]), ep = epoll_create1(0);
    long flying = atol(argv[3]), total = atol(argv[5]);
    struct conn *conns = calloc(count, sizeof *conns);
    make_burst(atol(argv[4]), flying);
    for (int i = 0; i < count; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = conns + i};
        conns[i].fd = dial(port);
        conns[i].window = flying / count + (i < flying % count);
        if (epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].fd, &e)) die("epoll_ctl");
    }
    double start = now();
    left = total;
    for (int i = 0; i < count; i++) ask(conns + i, conns[i].window);
    while (answered < total) {
        struct epoll_event ready[64];
        int n = epoll_wait(ep, ready, 64, 10000);
        if (n <= 0) die("no answer");
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            ssize_t r = read(c->fd, chunk, CHUNK);
            if (r <= 0) die("read");
            c->got += r;
            long whole = c->got / size;
            c->got -= whole * size;
            answered += whole;
            ask(c, whole);
        }
    }
    printf("{\"seconds\": %.6f, \"messages\": %ld}\n", now() - start, answered);
    return 0;
}
