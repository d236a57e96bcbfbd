//! preload: libnoexport.so
//! says: cannot be shared between processes by CUDA IPC here
//! says: the program gets CUDA's out-of-memory
// Exports memory while the driver fails at one step or another, of which some come when nothing is at the memory's address any more. Hard: its contents must
// be there again, at that address. Whether it was exported is not said: without help it always is.
#include "runtime.h"

enum { N = 2 * MIB / 4 };

static void export_with(const char *failing, float *at, int *failed) {
    if (failing) NEED(setenv("NO_EXPORT", failing, 1) == 0);
    ipc_handle handle;
    *failed += cudaIpcGetMemHandle(&handle, at) != 0;
    cudaGetLastError();
    unsetenv("NO_EXPORT");
    say("%s: %016" PRIx64 "\n", failing ? failing : "all well", on_device(at, N));
}

int main(void) {
    static const char *steps[] = {
        "cuMemCreate 1", "cuMemExportToShareableHandle 1", "cuMemAddressReserve 1", "cuMemAddressReserve 3", "cuMemMap 1", "cuMemMap 2",
        "cuMemSetAccess 1", "cuMemSetAccess 2",
    };
    int failed = 0;
    for (int i = 0; i < 8; i++) {
        float *at, *beside;
        OK(cudaMalloc((void **)&at, N * 4));
        OK(cudaMalloc((void **)&beside, N * 4));
        fill(at, N, (float)i, NULL);
        fill(beside, N, 1, NULL);
        export_with(steps[i], at, &failed);
        axpy(at, beside, N, 0.5f, NULL);
        // What failed once may be refused from then on.
        export_with(NULL, at, &failed);
        say("%016" PRIx64 "\n", on_device(beside, N));
        OK(cudaFree(at));
        OK(cudaFree(beside));
    }
    // Without help nothing of this fails; with it each of the steps was met.
    NEED(failed == 0 || failed >= 8);
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
