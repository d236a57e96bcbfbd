// Not linked against CUDA: the runtime comes late, by dlopen, in local scope, where RTLD_NEXT does not see it.
#include "check.h"
#include "cuda.h"
#include <sys/wait.h>
int main(void) {
    CHECK(ring() == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "cudaMalloc") == NULL);
    CHECK(ring() == NULL || counter(LAUNCHES) == 0);
    void *cudart = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_LOCAL);
    CHECK(cudart);
    // A launcher that forks before it trains: its child has a life of its own.
    pid_t child = fork();
    if (child) {
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        EQUAL(status, 0);
    }
    int (*alloc)(void **, size_t) = dlsym(cudart, "cudaMalloc");
    int (*launch)(RT) = dlsym(cudart, "cudaLaunchKernel");
    CHECK(alloc && launch);
    void *p;
    EQUAL(alloc(&p, 8 << 20), 0);
    ARGS(args, p);
    EQUAL(launch(KERNEL, ONE, ONE, args, 0, NULL), 0);
    EQUAL(counter(LAUNCHES), 1);
    EQUAL(counter(MANAGED), 1);
    _exit(0);
}
