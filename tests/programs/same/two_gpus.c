//! gpus: 2
// Two GPUs: memory on both, copies between them, and a current device for each thread. Hard: what we ask and issue ourselves must be about the right one, and leave
// the thread's device as it was.
#include "runtime.h"

static uint64_t found[2];

static void *run(void *number) {
    int me = (int)(intptr_t)number, device = -1;
    OK(cudaGetDevice(&device));
    NEED(device == 0);
    OK(cudaSetDevice(me));
    found[me] = train((float)me);
    OK(cudaGetDevice(&device));
    found[me] = found[me] * 31 + (uint64_t)device;
    return NULL;
}

int main(void) {
    int n, device;
    OK(cudaGetDeviceCount(&n));
    say("devices %d\n", n);
    float *at[2][3];
    for (int g = 0; g < 2; g++) {
        OK(cudaSetDevice(g));
        for (int i = 0; i < 3; i++) {
            OK(cudaMalloc((void **)&at[g][i], 4 * MIB));
            fill(at[g][i], MIB, (float)(10 * g + i), NULL);
        }
        OK(cudaDeviceSynchronize());
    }
    for (int g = 0; g < 2; g++) {
        int can = -1, asked = cudaDeviceCanAccessPeer(&can, g, 1 - g);
        say("peer access %d %d\n", asked, can);
        OK(cudaSetDevice(g));
        say("enabled %d\n", cudaDeviceEnablePeerAccess(1 - g, 0));
        say("twice %d\n", cudaDeviceEnablePeerAccess(1 - g, 0));
        say("of itself %d\n", cudaDeviceEnablePeerAccess(g, 0));
        say("last %d\n", cudaGetLastError());
        OK(cudaMemcpyPeer(at[1 - g][0], 1 - g, at[g][1], g, 4 * MIB));
        OK(cudaMemcpyPeerAsync(at[g][2], g, at[1 - g][2], 1 - g, 2 * MIB, NULL));
        OK(cudaDeviceSynchronize());
        OK(cudaMemcpy(at[g][1], at[1 - g][0], MIB, BY_ADDRESS));
    }
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 3; i++) {
            attributes what = {0};
            OK(cudaPointerGetAttributes(&what, at[g][i]));
            OK(cudaGetDevice(&device));
            say("on %d, asked from %d: %016" PRIx64 "\n", what.device, device, on_device(at[g][i], MIB));
        }
    pthread_t threads[2];
    for (intptr_t i = 0; i < 2; i++) NEED(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    OK(cudaGetDevice(&device));
    say("threads %016" PRIx64 " %016" PRIx64 ", and here it is %d\n", found[0], found[1], device);
    for (int g = 0; g < 2; g++)
        for (int i = 0; i < 3; i++) OK(cudaFree(at[g][i]));
    return 0;
}
