// 5,000 allocations and frees of 4 bytes to 1.5 MiB in random order, with what is in them checked when they go. Hard: addresses come back for other sizes and
// other kinds of memory, and two that live must never overlap.
#include "runtime.h"

enum { LIVE = 24 };
static uint64_t state = 88172645463325252;
static uint64_t any(void) { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }

int main(void) {
    struct { unsigned char *at; size_t bytes; int value; } live[LIVE] = {0};
    unsigned char *host = malloc(2 * MIB);
    uint64_t wrong = 0, sum = 0;
    for (int i = 0; i < 5000; i++) {
        int k = (int)(any() % LIVE);
        if (live[k].at) {
            size_t n = live[k].bytes < 64 ? live[k].bytes : 64;
            OK(cudaMemcpy(host, live[k].at, n, DEVICE_TO_HOST));
            OK(cudaMemcpy(host + n, live[k].at + live[k].bytes - n, n, DEVICE_TO_HOST));
            for (size_t j = 0; j < 2 * n; j++) wrong += host[j] != live[k].value;
            OK(cudaFree(live[k].at));
        }
        live[k].bytes = (any() % (1 + ((size_t)3 * MIB / 2 >> any() % 20)) + 4) & ~(size_t)3;
        live[k].value = (int)(any() & 255);
        OK(any() % 4 ? cudaMalloc((void **)&live[k].at, live[k].bytes) : cudaMallocManaged((void **)&live[k].at, live[k].bytes, ATTACH_GLOBAL));
        OK(cudaMemset(live[k].at, live[k].value, live[k].bytes));
        for (int other = 0; other < LIVE; other++)
            if (other != k && live[other].at) wrong += live[k].at < live[other].at + live[other].bytes && live[other].at < live[k].at + live[k].bytes;
    }
    for (int k = 0; k < LIVE; k++) {
        if (!live[k].at) continue;
        OK(cudaMemcpy(host, live[k].at, live[k].bytes, DEVICE_TO_HOST));
        sum = sum * 31 + digest(host, live[k].bytes);
        OK(cudaFree(live[k].at));
    }
    free(host);
    say("wrong %" PRIu64 ", left %016" PRIx64 "\n", wrong, sum);
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
