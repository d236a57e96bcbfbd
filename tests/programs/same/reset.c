//! says: the program reset a GPU
// Resets the GPU and uses it again, twice. Hard: memory, streams and contexts go, also those of ours, and their addresses come back.
#include "runtime.h"

int main(void) {
    for (int i = 0; i < 3; i++) {
        void *p;
        stream_t stream;
        OK(cudaMalloc(&p, 4 * MIB));
        OK(cudaStreamCreate(&stream));
        fill(p, MIB, (float)i, stream);
        say("%016" PRIx64 "\n", on_device(p, MIB));
        say("reset %d\n", cudaDeviceReset());
        // The stream is gone, too; the genuine driver ends a program that gives it back.
        say("what was there: free %d\n", cudaFree(p));
        cudaGetLastError();
        // Without us only so much fits: the rest of this program fits the tight device.
        OK(cudaMalloc(&p, 2 * MIB));
        OK(cudaMemset(p, i, 2 * MIB));
        say("%016" PRIx64 "\n", on_device(p, MIB / 2));
        OK(cudaFree(p));
    }
    return 0;
}
