// A plugin that uses the runtime by its own dependency, for deepbind.c and local_plugin.c.
#include "runtime.h"

// What the program may have of the same name is not the plugin's.
int helper(void) { return 41; }

uint64_t work(int seed, int *helped) {
    *helped = helper();
    float *at[3], *host = malloc(4 * MIB);
    uint64_t found = 0;
    for (int i = 0; i < 3; i++) {
        NEED(cudaMalloc((void **)&at[i], 4 * MIB) == 0);
        NEED(cudaMemset(at[i], seed + i, 4 * MIB) == 0);
    }
    for (int i = 0; i < 3; i++) {
        NEED(cudaMemcpy(host, at[i], 4 * MIB, DEVICE_TO_HOST) == 0);
        found = found * 31 + digest(host, 4 * MIB);
        NEED(cudaFree(at[i]) == 0);
    }
    free(host);
    return found;
}
