// Two threads use their own default streams, by the names that code for per-thread default streams calls. Hard: stream 0 is another one for each
// thread there, and what runs in it has its own order.
#include "runtime.h"

int cudaMemsetAsync_ptsz(void *, int, size_t, stream_t), cudaMemcpyAsync_ptsz(void *, const void *, size_t, int, stream_t), cudaMemcpy_ptds(void *, const void *, size_t, int);
int cudaStreamSynchronize_ptsz(stream_t), cudaEventRecord_ptsz(event_t, stream_t), cudaStreamQuery_ptsz(stream_t), cudaStreamWaitEvent_ptsz(stream_t, event_t, unsigned);
int cudaLaunchKernel_ptsz(const void *, dim3, dim3, void **, size_t, stream_t), cuMemcpyDtoH_v2_ptds(void *, uint64_t, size_t), cudaMemset_ptds(void *, int, size_t);

static uint64_t found[3];
static event_t written;

static void *run(void *number) {
    int me = (int)(intptr_t)number;
    float *a, *b, *host = malloc(4 * MIB), value = (float)me;
    OK(cudaMalloc((void **)&a, 4 * MIB));
    OK(cudaMalloc((void **)&b, 4 * MIB));
    for (int round = 0; round < 3; round++) {
        uint64_t p[3] = {(uint64_t)a, MIB, 0};
        memcpy(&p[2], &value, 4), value += 0.5f;
        void *params[6] = {&p[0], &p[1], &p[2], &p[2], &p[2], &p[2]};
        OK(cudaLaunchKernel_ptsz(kernel_symbol(FILL_KERNEL), (dim3){4096, 1, 1}, (dim3){256, 1, 1}, params, 0, NULL));
        OK(cudaMemcpyAsync_ptsz(b, a, 3 * MIB, DEVICE_TO_DEVICE, NULL));
        OK(cudaMemsetAsync_ptsz((char *)b + 3 * MIB, round, MIB, NULL));
        OK(cudaStreamSynchronize_ptsz(NULL));
        OK(cudaMemcpy_ptds(host, b, 4 * MIB, DEVICE_TO_HOST));
        found[me] = found[me] * 31 + digest(host, 4 * MIB);
        OK(cuMemcpyDtoH_v2_ptds(host, (uint64_t)b, 4 * MIB));
        found[me] = found[me] * 31 + digest(host, 4 * MIB);
        OK(cudaMemset_ptds(b, 3, MIB));
        // Of cudaStreamPerThread: it may not have come so far.
        int asked = cudaStreamQuery_ptsz((stream_t)2);
        NEED(asked == 0 || asked == 600);
    }
    if (me == 1) OK(cudaEventRecord_ptsz(written, NULL));
    OK(cudaFree(a));
    OK(cudaFree(b));
    free(host);
    return NULL;
}

int main(void) {
    pthread_t threads[3];
    OK(cudaEventCreateWithFlags(&written, NO_TIMING));
    for (intptr_t i = 0; i < 3; i++) NEED(pthread_create(&threads[i], NULL, run, (void *)i) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    OK(cudaStreamWaitEvent_ptsz(NULL, written, 0));
    OK(cudaStreamSynchronize_ptsz(NULL));
    for (int i = 0; i < 3; i++) say("%d %016" PRIx64 "\n", i, found[i]);
    return 0;
}
