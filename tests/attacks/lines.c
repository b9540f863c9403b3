// Prints numbered lines, one each INTERVAL milliseconds: "NAME 0", "NAME 1", ... Ends with CODE after COUNT lines,
// or, when COUNT is 0, after the line at which the file "stop" is there. The last line is "NAME end LINES".
// Appends one line to the file "starts" first, so that it can be counted how often it was started.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void say(int fd, const char *text) {
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) _exit(70);
}

int main(int argc, char **argv) {
    if (argc < 5) return 71;
    const char *name = argv[1];
    long count = atol(argv[2]), interval = atol(argv[3]);
    char line[256];
    int starts = open("starts", O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (starts < 0) return 72;
    snprintf(line, sizeof line, "%s\n", name);
    say(starts, line);
    close(starts);
    long number = 0;
    for (; count == 0 || number < count; number++) {
        snprintf(line, sizeof line, "%s %ld\n", name, number);
        say(1, line);
        if (count == 0 && access("stop", F_OK) == 0) {
            number++;
            break;
        }
        struct timespec pause = {interval / 1000, interval % 1000 * 1000000};
        nanosleep(&pause, 0);
    }
    snprintf(line, sizeof line, "%s end %ld\n", name, number);
    say(1, line);
    return atoi(argv[4]);
}
