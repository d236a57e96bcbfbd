// A forked child of a program that used CUDA is on its own: calls reach CUDA, nothing is counted, no thread is there. The parent goes on.
#include "check.h"
#include "cuda.h"
#include <dirent.h>
#include <sys/wait.h>
static int threads(void) {
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}
int main(void) {
    void *p;
    EQUAL(cudaMalloc(&p, 8 << 20), 0);
    ARGS(args, p);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    pid_t child = fork();
    if (child == 0) {
        EQUAL(threads(), 1);
        EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
        EQUAL(fake_calls("cuLaunchKernel"), 2);
        EQUAL(counter(LAUNCHES), 1);
        EQUAL(cudaMalloc(&p, 8 << 20), 0);
        EQUAL(fake_kind(p), 'd');
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    // A child that only starts another program shares our memory until then, and must leave it as it was.
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    EQUAL(cudaLaunchKernel(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(counter(LAUNCHES), 2);
    return 0;
}
