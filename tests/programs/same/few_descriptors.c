//! may say: DEEPUM_LEAVE=unmapped
//! may say: Too many open files
//! may say: no UVM address space among this process's 0 descriptors
//! may say: (memfd_create)
// Uses CUDA with hardly a descriptor left. Hard: what we open may not be had, and must neither be missed nor take the last ones from the program.
#include "runtime.h"
#include <sys/resource.h>

int main(void) {
    struct rlimit limit;
    NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (rlim_t most = 3; most < 20; most += 4) {
        limit.rlim_cur = most;
        pid_t child = fork();
        if (child == 0) {
            // The libraries are there; what the device needs is its own matter.
            NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
            void *p;
            int status = cudaMalloc(&p, 4 * MIB);
            // Which error it is depends on who is the first to miss a descriptor.
            say("%d descriptors: %s\n", (int)most, status == 0 ? "enough" : "too few");
            if (status == 0) say("%016" PRIx64 "\n", train(1));
            exit(15);
        }
        say("ended %d\n", ended(child));
    }
    return 0;
}
