// Exports memory while another thread gives the GPU work with it, kernels and copies, without a pause. Hard: the memory changes its kind at its address.
#include "runtime.h"

enum { BUFFERS = 2, N = 2 * MIB / 4, ROUNDS = 200 };

static float *at[BUFFERS];
static volatile int round_of_worker;

static void *work(void *unused) {
    stream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    for (int i = 0; i < ROUNDS; i++) {
        axpy(at[i % BUFFERS], at[(i + 1) % BUFFERS], N, 0.01f, stream);
        if (i % 7 == 0) OK(cudaMemcpyAsync(at[0] + i, at[1] + 2 * i, 4000, DEVICE_TO_DEVICE, stream));
        if (i % 20 == 0) OK(cudaStreamSynchronize(stream));
        round_of_worker = i;
    }
    OK(cudaStreamDestroy(stream));
    return unused;
}

int main(void) {
    for (int i = 0; i < BUFFERS; i++) {
        OK(cudaMalloc((void **)&at[i], N * 4));
        fill(at[i], N, (float)i + 1, NULL);
    }
    OK(cudaDeviceSynchronize());
    pthread_t worker;
    NEED(pthread_create(&worker, NULL, work, NULL) == 0);
    for (int i = 0; i < BUFFERS; i++) {
        while (round_of_worker < (i + 1) * ROUNDS / 4) usleep(100);
        ipc_handle handle;
        say("exported %d\n", cudaIpcGetMemHandle(&handle, at[i]));
    }
    NEED(pthread_join(worker, NULL) == 0);
    for (int i = 0; i < BUFFERS; i++) {
        say("%016" PRIx64 "\n", on_device(at[i], N));
        OK(cudaFree(at[i]));
    }
    say("%016" PRIx64 "\n", train(1));
    return 0;
}
