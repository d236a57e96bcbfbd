//! The whole-system suites, one module each, in one program: so that each core has another test to run until none is left.

mod cli;
mod compare;
mod copies;
mod daemon;
mod data_mode;
mod doctor;
mod drivers;
mod faults;
mod graphs;
mod ipc;
mod measure;
mod networks;
mod paper;
mod pools;
mod pytorch;
mod ranks;
mod record;
mod replay;
mod same;
mod saved_tables;
mod steady;
mod tensors;
