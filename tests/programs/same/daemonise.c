// Becomes a daemon by forking twice, leaves its session and closes what it has, and then uses CUDA. Hard: a preloaded library that set itself up
// before, in a process that is gone, would be broken here.
#include "runtime.h"
#include <sys/stat.h>

int main(void) {
    int out[2];
    NEED(pipe(out) == 0);
    pid_t child = fork();
    if (child == 0) {
        NEED(setsid() > 0);
        if (fork()) _exit(9);
        umask(0);
        NEED(chdir("/") == 0);
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) NEED(dup2(null, fd) == fd);
        for (int fd = 3; fd < 1024; fd++)
            if (fd != out[1]) close(fd);
        uint64_t found[3] = {train(1), (uint64_t)(dprintf(STDOUT_FILENO, "nobody reads this\n") > 0), train(2)};
        NEED(write(out[1], found, sizeof found) == sizeof found);
        exit(0);
    }
    close(out[1]);
    say("ended %d\n", ended(child));
    uint64_t found[3] = {0};
    NEED(read(out[0], found, sizeof found) == sizeof found);
    say("daemon %016" PRIx64 " %" PRIu64 " %016" PRIx64 "\n", found[0], found[1], found[2]);
    // And it ends: nobody has the pipe any more.
    char byte;
    say("its end of the pipe %zd\n", read(out[0], &byte, 1));
    return 0;
}
