// What is behind libcudnn_front.so.
int cudnnBackendExecute(void *, void *, void *);
int cudnnBackendExecute(void *handle, void *plan, void *pack) { return handle || plan || pack ? 3 : 2000; }
