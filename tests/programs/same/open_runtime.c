// Opens the runtime by dlopen, uses it by dlsym, and closes it, twice. Hard: as with the driver, which the runtime opens by itself.
#include "common.h"

#if CUDA == 12
#define RUNTIME "libcudart.so.12"
#else
#define RUNTIME "libcudart.so.13"
#endif

static void *get(void *runtime, const char *name) {
    void *at = dlsym(runtime, name);
    NEED(at);
    return at;
}
#define CALL(name, ...) ((int (*)())get(runtime, #name))(__VA_ARGS__)

int main(void) {
    say("before: %d\n", dlsym(RTLD_DEFAULT, "cudaMemcpy") != NULL);
    for (int i = 0; i < 2; i++) {
        void *runtime = dlopen(RUNTIME, RTLD_LAZY | (i ? RTLD_GLOBAL : RTLD_LOCAL));
        NEED(runtime);
        int version = 0, devices = 0;
        NEED(CALL(cudaRuntimeGetVersion, &version) == 0);
        say("version %d\n", version / 1000);
        NEED(CALL(cudaGetDeviceCount, &devices) == 0);
        say("devices %d\n", devices);
        void *at[3];
        char *host = malloc(4 * MIB);
        for (int j = 0; j < 3; j++) {
            say("malloc %d\n", CALL(cudaMalloc, &at[j], (size_t)4 * MIB));
            say("set %d\n", CALL(cudaMemset, at[j], 10 * i + j, (size_t)4 * MIB));
        }
        for (int j = 0; j < 3; j++) {
            int copied = CALL(cudaMemcpy, host, at[j], (size_t)4 * MIB, 2);
            say("copy %d %016" PRIx64 "\n", copied, digest(host, 4 * MIB));
            say("free %d\n", CALL(cudaFree, at[j]));
        }
        free(host);
        say("bad %d\n", CALL(cudaFree, at[0]));
        say("then %d\n", CALL(cudaGetLastError));
        say("then %d\n", CALL(cudaGetLastError));
        say("close %d\n", dlclose(runtime));
    }
    return 0;
}
