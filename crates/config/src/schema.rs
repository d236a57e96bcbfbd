//! The list of variables, and what reading them gives.

use crate::values::{
    Await, Budget, EngineIn, ExecIdMode, Leave, LogLevel, MemInfo, NotAllowed, TablesIn, Times, flag, one_of, parsed,
    workload,
};
use deepum_core::correlate::Geometry;
use deepum_core::engine::DEGREE;
use deepum_core::invalidate::Invalidate;
use deepum_core::policy::PolicyName;
use deepum_core::units::Bytes;
use std::path::PathBuf;

/// What every part of DeepUM is configured by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Whether DeepUM does anything at all.
    pub enabled: bool,
    /// Who decides what moves when.
    pub policy: PolicyName,
    /// Device memory to fill at most.
    pub gpu_budget: Budget,
    /// How many times what may be filled of a GPU managed memory on it may be.
    pub most: Option<Times>,
    /// Host memory that managed memory may use; nothing said: what the host can spare, asked at each allocation.
    pub host_budget: Option<Budget>,
    /// Launches that prefetching may run ahead.
    pub degree: u32,
    /// Whether launches wait on the GPU for what is fetched for them, instead of faulting.
    pub gate: bool,
    /// Whether blocks are moved out before their room is needed.
    pub preevict: bool,
    /// What is done about contents that nobody needs, where the driver can.
    pub invalidate: Invalidate,
    /// Whether a block may be on the GPU and on the host at once, where the driver can.
    pub two_copies: bool,
    /// How blocks leave the GPU.
    pub leave: Leave,
    /// How it is known that what comes is there, in the program; a daemon has calls alone.
    pub await_by: Await,
    /// Geometry of the UM-block tables.
    pub table: Geometry,
    /// Where the engine runs.
    pub engine: EngineIn,
    /// The program's share among those of its user, where a daemon runs the engine.
    pub weight: u32,
    /// Where learned tables are kept from run to run.
    pub tables: TablesIn,
    /// What the program works on, where the person says it.
    pub workload: Option<String>,
    /// Where a trace of what the program does is written.
    pub record: Option<PathBuf>,
    /// What makes two launches the same.
    pub exec_id: ExecIdMode,
    /// What memory queries answer.
    pub meminfo: MemInfo,
    /// How much is said on stderr.
    pub log: LogLevel,
}

impl Default for Config {
    /// The table geometry is the DeepUM paper's (ASPLOS'23, section 6).
    fn default() -> Self {
        Self {
            enabled: true,
            policy: PolicyName::default(),
            gpu_budget: Budget::Percent(100),
            most: None,
            host_budget: None,
            degree: DEGREE,
            gate: true,
            preevict: true,
            invalidate: Invalidate::Discard,
            two_copies: false,
            leave: Leave::Measured,
            await_by: Await::Word,
            table: Geometry::default(),
            engine: EngineIn::Program,
            weight: 1,
            tables: TablesIn::Usual,
            workload: None,
            record: None,
            exec_id: ExecIdMode::Pointers,
            meminfo: MemInfo::Virtual,
            log: LogLevel::Error,
        }
    }
}

/// One variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// How its values look, for the help.
    pub values: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// Puts a value into the configuration.
    set: fn(&mut Config, &str) -> Result<(), NotAllowed>,
    /// What holds without it, for the help.
    pub(crate) default: fn(&Config) -> String,
}

/// Every variable there is.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "DEEPUM",
        values: "0|1",
        help: "0 turns DeepUM off: every call goes straight to CUDA, nothing is started, nothing is printed",
        set: |c, v| flag(v).map(|on| c.enabled = on),
        default: |c| u8::from(c.enabled).to_string(),
    },
    Variable {
        name: "DEEPUM_POLICY",
        values: "demand|next_block|deepum|horizon|deepum_paper|restless",
        help: "who decides what moves when: the driver alone, the block after each fault, the correlation tables with our plan, \
               a whole iteration ahead, in which whoever is needed last leaves (`docs/policies.md`), or the tables with chaining as in the paper; \
               `restless` asks for anything without reason, for tests",
        set: |c, v| parsed(v, one_of(&PolicyName::ALL.map(PolicyName::as_str))).map(|p| c.policy = p),
        default: |c| c.policy.to_string(),
    },
    Variable {
        name: "DEEPUM_GPU_BUDGET",
        values: "BYTES|16GiB|80%",
        help: "device memory to fill at most; a share is one of the GPU's memory",
        set: |c, v| Budget::parse(v).map(|b| c.gpu_budget = b),
        default: |c| c.gpu_budget.to_string(),
    },
    Variable {
        name: "DEEPUM_MAX_OVERSUBSCRIPTION",
        values: "TIMES|none",
        help: "how many times DEEPUM_GPU_BUDGET a program may allocate on a GPU (1.5, 4); an allocation beyond it gets CUDA's out-of-memory error, as \
               one beyond DEEPUM_HOST_BUDGET does",
        set: |c, v| Times::parse(v).map(|times| c.most = times),
        default: |_| "none: the host's memory is the limit".to_owned(),
    },
    Variable {
        name: "DEEPUM_HOST_BUDGET",
        values: "BYTES|64GiB|50%",
        help: "host memory that managed memory may use; a share is one of the host's memory; an allocation beyond it \
               gets CUDA's out-of-memory error",
        set: |c, v| Budget::parse(v).map(|b| c.host_budget = Some(b)),
        default: |_| "what the host can spare: available memory and cgroup limit".to_owned(),
    },
    Variable {
        name: "DEEPUM_DEGREE",
        values: "1..4096",
        help: "launches that prefetching may run ahead of the GPU, under `deepum` and `deepum_paper`",
        set: |c, v| {
            let allowed = "a whole number from 1 to 4096";
            let degree = parsed(v, allowed).ok().filter(|n| (1..=4096).contains(n));
            degree.map(|n| c.degree = n).ok_or_else(|| NotAllowed::new(v, allowed))
        },
        default: |c| c.degree.to_string(),
    },
    Variable {
        name: "DEEPUM_GATE",
        values: "0|1",
        help: "1: a launch whose blocks are on their way waits for them on the GPU; 0: it starts, and faults on them, as in \
               the paper",
        set: |c, v| flag(v).map(|on| c.gate = on),
        default: |c| u8::from(c.gate).to_string(),
    },
    Variable {
        name: "DEEPUM_PREEVICT",
        values: "0|1",
        help: "1: what is needed last leaves the GPU before its room is wanted; 0: only when it is",
        set: |c, v| flag(v).map(|on| c.preevict = on),
        default: |c| u8::from(c.preevict).to_string(),
    },
    Variable {
        name: "DEEPUM_INVALIDATE",
        values: "no|evict|discard",
        help: "contents of memory that PyTorch has taken back: no: move like any others; evict: leave the GPU first, with a \
               copy; discard: are given up without one, or leave first where the driver cannot (before 580.65, after 595)",
        set: |c, v| parsed(v, one_of(&Invalidate::ALL.map(Invalidate::as_str))).map(|i| c.invalidate = i),
        default: |c| c.invalidate.to_string(),
    },
    Variable {
        name: "DEEPUM_COPIES",
        values: "1|2",
        help: "2: what is only read may be on the GPU and on the host at once, and leaves the GPU without a copy (`horizon`; drivers 515 to 595). \
               Faster where time to copy out is short, by a few percent; rests on what the driver's source says, and was run on one GPU only",
        set: |c, v| {
            let allowed = "1 or 2";
            let copies = parsed(v, allowed).ok().filter(|n: &u8| (1..=2).contains(n));
            copies.map(|n| c.two_copies = n == 2).ok_or_else(|| NotAllowed::new(v, allowed))
        },
        default: |c| (1 + u8::from(c.two_copies)).to_string(),
    },
    Variable {
        name: "DEEPUM_LEAVE",
        values: "measured|mapped|unmapped",
        help: "how blocks leave the GPU: mapped by the host page by page, which takes a processor 117 us a block; unmapped, for which the driver has to let nothing else move for a moment, and after which it is left to DeepUM to bring what the GPU faults on; \
               or as was faster of late, the other way being tried now and then. What is the program's own managed memory, or has two copies, leaves mapped",
        set: |c, v| Leave::parse(v).map(|l| c.leave = l),
        default: |c| c.leave.to_string(),
    },
    Variable {
        name: "DEEPUM_AWAIT",
        values: "word|call",
        help: "how it is known that what comes is on the GPU: word: the driver writes one then, and nobody holds up what leaves meanwhile; call: a call of the driver returns then, as always where deepumd \
               runs the engine. Words carried more on the one GPU that they were tried on; training was a tenth slower with an earlier form of them, and was not tried with this one",
        set: |c, v| Await::parse(v).map(|a| c.await_by = a),
        default: |c| c.await_by.to_string(),
    },
    Variable {
        name: "DEEPUM_TABLE",
        values: "ROWS,WAYS,SUCCESSORS[,compact|,paper]",
        help: "geometry of each UM-block correlation table, and whether it takes memory for what is in it or all of it from \
               the start, as in the paper",
        set: |c, v| {
            let allowed = "rows,ways,successors: rows a power of two from 1 to 65536, ways 1 to 16, successors 1 to 16; \
                           then, if you like, compact or paper";
            parsed(v, allowed).map(|t| c.table = t)
        },
        default: |c| c.table.to_string(),
    },
    Variable {
        name: "DEEPUM_ENGINE",
        values: "embedded|daemon[:SOCKET]",
        help: "where the engine runs: in the program, or in deepumd, which shares GPUs among programs; without a daemon the \
               program runs as plain unified memory until one answers",
        set: |c, v| EngineIn::parse(v).map(|e| c.engine = e),
        default: |_| "embedded; deepumd listens at deepum/deepumd.sock in $XDG_RUNTIME_DIR or /run".to_owned(),
    },
    Variable {
        name: "DEEPUM_WEIGHT",
        values: "1..100",
        help: "this program's share of a GPU among those of the same user, where deepumd runs the engine",
        set: |c, v| {
            let allowed = "a whole number from 1 to 100";
            let weight = parsed(v, allowed).ok().filter(|n| (1..=100).contains(n));
            weight.map(|n| c.weight = n).ok_or_else(|| NotAllowed::new(v, allowed))
        },
        default: |c| c.weight.to_string(),
    },
    Variable {
        name: "DEEPUM_TABLES",
        values: "off|FOLDER",
        help: "where what was learned is kept, so that the next run of the same program begins with it; a folder that you alone \
               can write to",
        set: |c, v| TablesIn::parse(v).map(|t| c.tables = t),
        default: |_| {
            "deepum/tables in $XDG_STATE_HOME or ~/.local/state; off on the emulated device, whose runs are not to depend on earlier ones"
                .to_owned()
        },
    },
    Variable {
        name: "DEEPUM_WORKLOAD",
        values: "NAME",
        help: "which workload's tables to go on with and to save, whatever the program and its arguments are",
        set: |c, v| workload(v).map(|name| c.workload = Some(name)),
        default: |_| "the executable, its arguments, its folder, and the version of PyTorch".to_owned(),
    },
    Variable {
        name: "DEEPUM_RECORD",
        values: "FILE",
        help: "where to write a trace of what the program does, for `deepum replay`; a process that finds another one recording there writes \
               FILE.PID, and other GPUs than the first have FILE.gpu1, …",
        set: |c, v| {
            c.record = Some(v.into());
            Ok(())
        },
        default: |_| "nothing is recorded".to_owned(),
    },
    Variable {
        name: "DEEPUM_EXEC_ID",
        values: "pointers|raw",
        help: "what makes two launches the same: kernel, shape and pointers, or kernel and the raw bytes of all arguments \
               as in the paper",
        set: |c, v| ExecIdMode::parse(v).map(|m| c.exec_id = m),
        default: |c| c.exec_id.to_string(),
    },
    Variable {
        name: "DEEPUM_MEMINFO",
        values: "virtual|physical",
        help: "what memory queries tell the program: what may be allocated, which is the device memory we may fill or, if that is more, the host memory it may move to; or what the driver says",
        set: |c, v| MemInfo::parse(v).map(|m| c.meminfo = m),
        default: |c| c.meminfo.to_string(),
    },
    Variable {
        name: "DEEPUM_LOG",
        values: "off|error|info|debug",
        help: "how much DeepUM says on stderr",
        set: |c, v| LogLevel::parse(v).map(|l| c.log = l),
        default: |c| c.log.to_string(),
    },
    Variable {
        name: "DEEPUM_EMU",
        values: "PROFILE[:key=value,…]",
        help: "the emulated device to play, where its stand-in libraries are loaded; read by them",
        set: |_, _| Ok(()),
        default: |_| "v100-32g".to_owned(),
    },
    Variable {
        name: "DEEPUM_EMU_LOG",
        values: "FILE",
        help: "where the emulated device keeps its flight log; read by it",
        set: |_, _| Ok(()),
        default: |_| "none".to_owned(),
    },
];

/// What reading the environment gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The configuration; defaults where nothing, or nothing allowed, was said.
    pub config: Config,
    /// What the person should be told, one line each.
    pub lines: Vec<String>,
}

impl Config {
    /// Reads from `(name, value)` pairs, usually `std::env::vars_os` made text; pairs of other programs are passed over.
    /// An empty value counts as none.
    pub fn read<N: AsRef<str>, V: AsRef<str>>(vars: impl IntoIterator<Item = (N, V)>) -> Reading {
        let mut config = Self::default();
        let mut found: Vec<(N, V)> = vars
            .into_iter()
            .filter(|(name, _)| name.as_ref() == "DEEPUM" || name.as_ref().starts_with("DEEPUM_"))
            .collect();
        found.sort_by(|a, b| a.0.as_ref().cmp(b.0.as_ref()));
        let mut lines = Vec::new();
        for (name, value) in &found {
            let (name, value) = (name.as_ref(), value.as_ref());
            let Some(variable) = VARIABLES.iter().find(|v| v.name == name) else {
                lines.push(format!("{name} is no variable of DeepUM; did you mean {}?", closest(name)));
                continue;
            };
            if value.trim().is_empty() {
                continue;
            }
            if let Err(error) = (variable.set)(&mut config, value) {
                lines.push(format!(
                    "{name}={} is not allowed: {}; using {}",
                    error.value,
                    error.allowed,
                    (variable.default)(&Self::default()),
                ));
            }
        }
        let usual = Self::default();
        for (name, value, is_asked, heeded_by) in [
            (
                "DEEPUM_DEGREE",
                config.degree,
                config.degree != usual.degree,
                [PolicyName::Deepum, PolicyName::DeepumPaper],
            ),
            ("DEEPUM_COPIES", 2, config.two_copies, [PolicyName::Horizon, PolicyName::Restless]),
        ] {
            if is_asked && !heeded_by.contains(&config.policy) {
                let heeded_by = heeded_by.map(PolicyName::as_str).join(" and ");
                lines.push(format!(
                    "{name}={value} has no say under DEEPUM_POLICY={}; {heeded_by} heed it",
                    config.policy
                ));
            }
        }
        Reading { config, lines }
    }

    /// Device bytes that may be filled on a GPU of `memory` bytes.
    pub fn budget_of(&self, memory: Bytes) -> Bytes {
        self.gpu_budget.of(memory)
    }

    /// Managed bytes that may be allocated on a GPU of which `budget` bytes may be filled, if there is a limit but the host's memory.
    pub fn most_on(&self, budget: Bytes) -> Option<Bytes> {
        self.most.map(|times| times.of(budget))
    }
}

/// The name most like `name`.
fn closest(name: &str) -> &'static str {
    VARIABLES.iter().map(|v| v.name).min_by_key(|known| distance(name, known)).unwrap_or("DEEPUM")
}

/// Levenshtein distance, by bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
