/* Put before the C library of a gateway under test: while the file that BROKEN_SYNC names is there, fdatasync(2) fails
 * with EIO, as when a disk breaks. Does nothing else. */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int file) {
    const char *broken = getenv("BROKEN_SYNC");
    if (broken && access(broken, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, file);
}
