//! What the device answers when it does not do what was asked: the driver API's own result codes.

use deepum_model::ModelError;

/// A driver API failure. The number of a variant is its `CUresult` (CUDA driver API reference, "CUresult").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[repr(i32)]
pub enum CuError {
    /// An argument is not acceptable.
    #[error("invalid argument")]
    InvalidValue = 1,
    /// No room, on the device or on the host.
    #[error("out of memory")]
    OutOfMemory = 2,
    /// `cuInit` was not called, or this is a forked child.
    #[error("initialization error")]
    NotInitialized = 3,
    /// The process is ending.
    #[error("driver shutting down")]
    Deinitialized = 4,
    /// No such device.
    #[error("no CUDA-capable device is detected")]
    NoDevice = 100,
    /// Device ordinal out of range.
    #[error("invalid device ordinal")]
    InvalidDevice = 101,
    /// Not a kernel image.
    #[error("device kernel image is invalid")]
    InvalidImage = 200,
    /// No current context, or not a context.
    #[error("invalid device context")]
    InvalidContext = 201,
    /// The image has no code for this device.
    #[error("no kernel image is available for execution on the device")]
    NoBinaryForGpu = 209,
    /// A source file was not found.
    #[error("file not found")]
    FileNotFound = 301,
    /// Not a live stream, event, module, function or library.
    #[error("invalid resource handle")]
    InvalidHandle = 400,
    /// Not in this state: a capture that is none, or is one already.
    #[error("the operation cannot be performed in the present state")]
    IllegalState = 401,
    /// No function, variable or symbol of this name.
    #[error("named symbol not found")]
    NotFound = 500,
    /// Work is still under way: not a failure.
    #[error("device not ready")]
    NotReady = 600,
    /// A kernel died: the driver found no memory for a page it touched.
    #[error("unspecified launch failure")]
    LaunchFailed = 719,
    /// The devices are no peers.
    #[error("peer access is not supported between these two devices")]
    PeerAccessUnsupported = 217,
    /// Peer access was not switched on.
    #[error("peer access has not been enabled")]
    PeerAccessNotEnabled = 705,
    /// This machine has not what it takes.
    #[error("operation not permitted")]
    NotPermitted = 800,
    /// A cooperative launch has more blocks than can be on the device at once.
    #[error("too many blocks in cooperative launch")]
    CooperativeLaunchTooLarge = 720,
    /// The host range is registered already.
    #[error("part or all of the requested memory range is already mapped")]
    HostMemoryAlreadyRegistered = 712,
    /// The host range is not registered.
    #[error("pointer does not correspond to a registered memory region")]
    HostMemoryNotRegistered = 713,
    /// The limit does not exist on this device.
    #[error("limit is not supported on this architecture")]
    UnsupportedLimit = 215,
    /// The emulated device does not do this.
    #[error("operation not supported")]
    NotSupported = 801,
    /// A capture forbids it, and is invalid from now on.
    #[error("operation not permitted when stream is capturing")]
    CaptureUnsupported = 900,
    /// Something earlier made the capture invalid.
    #[error("operation failed due to a previous error during capture")]
    CaptureInvalidated = 901,
    /// It would join two captures.
    #[error("operation would result in a merge of separate capture sequences")]
    CaptureMerge = 902,
    /// The capture began in another stream.
    #[error("capture was not ended in the same stream as it began")]
    CaptureUnmatched = 903,
    /// A stream that the capture forked into did not join again.
    #[error("capturing stream has unjoined work")]
    CaptureUnjoined = 904,
    /// A captured stream would wait for work that is not captured.
    #[error("dependency created on uncaptured work in another stream")]
    CaptureIsolation = 905,
    /// The NULL stream would wait for a stream that captures.
    #[error("operation would make the legacy stream depend on a capturing blocking stream")]
    CaptureImplicit = 906,
    /// The event was last recorded in a capture: nothing ever reaches it.
    #[error("operation not permitted on an event last recorded in a capturing stream")]
    CapturedEvent = 907,
    /// The capture began in another thread.
    #[error("attempt to terminate a thread-local capture sequence from another thread")]
    CaptureWrongThread = 908,
    /// The graph is not as the executable one was.
    #[error(
        "the graph update was not performed because it included changes which violated constraints specific to instantiated \
         graph update"
    )]
    GraphUpdateFailure = 910,
    /// A defect of the emulated device itself.
    #[error("unknown error")]
    Unknown = 999,
}

impl CuError {
    /// Its `CUresult`.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// What the model refused, as the driver says it.
impl From<ModelError> for CuError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::OutOfMemory { .. } => Self::OutOfMemory,
            ModelError::NoDevice { .. } | ModelError::Stays { .. } => Self::InvalidDevice,
            ModelError::NotManaged { .. } | ModelError::NotMappable { .. } | ModelError::Unpreferred { .. } => {
                Self::InvalidValue
            }
            ModelError::NoGroup { .. } => Self::NotFound,
            ModelError::PartOfBlock { .. } => Self::NotSupported,
        }
    }
}

/// Outcome of an operation of the device.
pub type CuResult<T = ()> = Result<T, CuError>;
