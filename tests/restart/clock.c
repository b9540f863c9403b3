// Moves CLOCK_REALTIME by CLOCK_STEP_SECONDS for the process that preloads this.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    static long step = 0, known = 0;
    if (!known) {
        const char *text = getenv("CLOCK_STEP_SECONDS");
        step = text ? atol(text) : 0;
        known = 1;
    }
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += step;
    return result;
}
