// A library with memory of its own that it frees when it goes, for at_end.c.
#include "runtime.h"

static void *kept;
void keep(void) {
    NEED(cudaMalloc(&kept, 4 * MIB) == 0);
    NEED(cudaMemset(kept, 6, 4 * MIB) == 0);
}
__attribute__((destructor)) static void gone(void) {
    char *host = malloc(4 * MIB);
    int copied = cudaMemcpy(host, kept, 4 * MIB, DEVICE_TO_HOST);
    say("the library ends: copy %d %016" PRIx64 "\n", copied, copied ? 0 : digest(host, 4 * MIB));
    say("free %d\n", cudaFree(kept));
    say("and once more %d\n", cudaFree(kept));
    free(host);
}
