// Events across streams: their order, what queries give before and after, and what is refused. Hard: what we put into streams ourselves must neither come between
// nor be waited for by mistake.
#include "runtime.h"

int main(void) {
    enum { STREAMS = 4, N = MIB };
    stream_t streams[STREAMS];
    event_t events[STREAMS], timed[2], never;
    float *at[STREAMS], between;
    for (int i = 0; i < STREAMS; i++) {
        OK(cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING));
        OK(cudaEventCreateWithFlags(&events[i], NO_TIMING));
        OK(cudaMalloc((void **)&at[i], N * 4));
        fill(at[i], N, (float)i, streams[i]);
        OK(cudaEventRecord(events[i], streams[i]));
    }
    OK(cudaEventCreate(&timed[0]));
    OK(cudaEventCreate(&timed[1]));
    OK(cudaEventCreate(&never));
    for (int round = 0; round < 12; round++) {
        int i = round % STREAMS, j = (round * 3 + 1) % STREAMS;
        OK(cudaStreamWaitEvent(streams[i], events[j], 0));
        if (i != j) axpy(at[i], at[j], N, 0.25f, streams[i]);
        OK(cudaEventRecord(events[i], streams[i]));
        OK(cudaStreamWaitEvent(streams[j], events[i], 0));
        scale(at[j], N, 0.75f, streams[j]);
        OK(cudaEventRecord(events[j], streams[j]));
    }
    for (int i = 0; i < STREAMS; i++) {
        OK(cudaEventSynchronize(events[i]));
        say("event %d, stream %d\n", cudaEventQuery(events[i]), cudaStreamQuery(streams[i]));
    }
    for (int i = 0; i < STREAMS; i++) say("%016" PRIx64 "\n", on_device(at[i], N));
    say("never recorded: query %d\n", cudaEventQuery(never));
    OK(cudaEventRecord(timed[0], streams[0]));
    fill(at[0], N, 1, streams[0]);
    OK(cudaEventRecord(timed[1], streams[0]));
    OK(cudaEventSynchronize(timed[1]));
    OK(cudaEventElapsedTime(&between, timed[0], timed[1]));
    say("time passed %d\n", between > 0);
    say("backwards %d\n", cudaEventElapsedTime(&between, timed[1], timed[0]) == 0 && between < 0);
    say("not recorded %d\n", cudaEventElapsedTime(&between, timed[0], never));
    say("without times %d\n", cudaEventElapsedTime(&between, events[0], events[1]));
    say("last %d\n", cudaGetLastError());
    for (int i = 0; i < STREAMS; i++) OK(cudaEventDestroy(events[i])), OK(cudaStreamDestroy(streams[i])), OK(cudaFree(at[i]));
    say("destroyed event %d\n", cudaEventQuery(events[0]));
    say("destroyed stream %d\n", cudaStreamSynchronize(streams[0]));
    return 0;
}
