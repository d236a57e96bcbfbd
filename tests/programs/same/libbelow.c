// Interposers behind us in the order of preloads, for interposed.c: count calls, and hand them to whoever is next.
#include "common.h"

static int counted[3];
#define NEXT(name) ((int (*)())dlsym(RTLD_NEXT, #name))

int cudaMalloc(void **at, size_t bytes) { return counted[0]++, NEXT(cudaMalloc)(at, bytes); }
int cudaMallocManaged(void **at, size_t bytes, unsigned flags) { return counted[0]++, NEXT(cudaMallocManaged)(at, bytes, flags); }
int cudaFree(void *at) { return counted[1] += at != NULL, NEXT(cudaFree)(at); }
int cudaMemset(void *at, int value, size_t bytes) { return counted[2]++, NEXT(cudaMemset)(at, value, bytes); }
// 0: memory made, by whatever function of the runtime; 1: freed (to free nothing is how anybody gets a context); 2: set.
int below_counted(int which) { return counted[which]; }
