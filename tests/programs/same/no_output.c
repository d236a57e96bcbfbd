// Standard input, output and error are closed before CUDA starts, and files are opened in their places. Hard: a line of ours would end up in a file of the
// program, and a descriptor of ours in the place of its standard output.
#include "runtime.h"
#include <sys/mman.h>

int main(void) {
    int out = dup(STDOUT_FILENO);
    for (int fd = 0; fd < 3; fd++) close(fd);
    uint64_t closed = train(1);
    // The driver may have opened something there.
    int ours = 0;
    for (int fd = 0; fd < 3; fd++) {
        char link[64], target[256] = {0};
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ours += readlink(link, target, sizeof target - 1) > 0 && strstr(target, "deepum-") != NULL;
        dprintf(fd, "nobody reads this");
    }
    int file = memfd_create("a file of the program's", 0);
    // What the driver opened there it may write to.
    for (int fd = 0; fd < 3; fd++) NEED(fcntl(fd, F_GETFD) >= 0 || dup2(file, fd) == fd);
    setenv("DEEPUM_GPU_BUDGET", "nonsense", 1);
    uint64_t filed = train(2);
    dprintf(out, "%016" PRIx64 " %016" PRIx64 "; of DeepUM's in the first three places %d; the file has %d bytes\n", closed, filed, ours, (int)lseek(file, 0, SEEK_END));
    return 16;
}
