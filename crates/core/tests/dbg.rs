mod world;
use deepum_core::engine::Config;
use deepum_core::policy::PolicyName;
use deepum_core::units::{Bytes, UmBlock};
use world::*;
#[test]
fn dbg() {
    let mut layout = Layout::default();
    let works = training_step(&mut layout, 24, 12, 12000);
    let c = layout.blocks() / 2;
    let mut w = World::new(Config::new(PolicyName::Deepum, Bytes(c as u64 * UmBlock::SIZE.get())), c);
    for &t in &layout.tensors {
        w.alloc(t);
    }
    for i in 0..5 {
        eprintln!("ITER {i}");
        let f = w.iterate(&works, 0);
        eprintln!("{i} {f:?}");
    }
}
