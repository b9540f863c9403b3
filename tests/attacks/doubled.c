/* doubled ENTRY ENTRY PROGRAM ARG...   executes a program with exactly these two entries, and a PATH, as its environment. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    char *environment[] = {argv[1], argv[2], "PATH=/usr/local/bin:/usr/bin:/bin", NULL};
    execve(argv[3], argv + 3, environment);
    perror("execve");
    return 126;
}
