//! may say: DEEPUM_LEAVE=unmapped
//! may say: UVM_MIGRATE failed
// Closes every descriptor from 3 on after CUDA started, as daemons do, and opens files of its own, which get the same numbers. Hard: whatever we had
// open is gone, and what we do with those numbers we do to the program's files.
#include "runtime.h"
#include <sys/mman.h>

enum { FILES = 40, PIPES = 20, HIGH = 200 };
static const char text[] = "what the program wrote";

// From 3 on, and again from 200 on, where a preloaded library may think itself out of the way.
static int put(int fd, int i) {
    int at = fcntl(fd, F_DUPFD, i % 2 ? HIGH : 3);
    NEED(at >= 3);
    close(fd);
    return at;
}

int main(void) {
    say("before %016" PRIx64 "\n", train(1));
    for (int fd = 3; fd < 1024; fd++) close(fd);
    int files[FILES], pipes[PIPES][2], good = 0, quiet = 0;
    for (int i = 0; i < FILES; i++) {
        files[i] = put(memfd_create("own", 0), i);
        NEED(write(files[i], text, sizeof text) == sizeof text);
    }
    for (int i = 0; i < PIPES; i++) {
        NEED(pipe2(pipes[i], O_NONBLOCK) == 0);
        pipes[i][0] = put(pipes[i][0], 1), pipes[i][1] = put(pipes[i][1], i);
        NEED(write(pipes[i][1], "x", 1) == 1);
    }
    // Whether CUDA lives on without its own descriptors is nobody's promise; what matters is what is done to those that are there now.
    void *p;
    for (int i = 0; i < 20; i++)
        if (cudaMalloc(&p, 4 * MIB) == 0) cudaMemset(p, 1, 4 * MIB), cudaDeviceSynchronize(), cudaFree(p);
    usleep(300000);
    for (int i = 0; i < FILES; i++) {
        char back[64];
        good += lseek(files[i], 0, SEEK_CUR) == sizeof text && lseek(files[i], 0, SEEK_END) == sizeof text && pread(files[i], back, sizeof back, 0) == sizeof text && !memcmp(back, text, sizeof text);
    }
    for (int i = 0; i < PIPES; i++) {
        char bytes[2];
        quiet += read(pipes[i][0], bytes, 2) == 1 && read(pipes[i][0], bytes, 2) == -1 && errno == EAGAIN;
    }
    say("files as they were %d, pipes %d\n", good, quiet);
    return 14;
}
