//! A transformer's training step as a program sees it: a caching allocator, and launches over its tensors.
//!
//! Sizes follow the shapes of GPT-2 with AdamW in single precision; the sequence of operations is that of eager
//! PyTorch, simplified. Memory is handed out as the caching allocator does it: of one size the lowest address
//! first, so that the second iteration's addresses differ from the first's and later ones repeat.

use std::collections::{BTreeMap, BTreeSet};

use deepum_core::units::{AddrRange, Bytes, UmBlock};

/// One thing the host does.
#[derive(Clone, Debug)]
pub enum HostOp {
    /// Managed memory is given to the program.
    Alloc(AddrRange),
    /// The caching allocator hands a PT block out or takes it back.
    Pt(AddrRange, bool),
    /// A launch: what it is given, what it uses of that, and the arithmetic it does.
    Launch { name: u64, tensors: Vec<AddrRange>, uses: Vec<AddrRange>, flops: f64 },
}

#[derive(Clone, Copy)]
pub struct Shape {
    pub layers: usize,
    pub hidden: u64,
    pub heads: u64,
    pub tokens: u64,
    pub sequence: u64,
    pub vocabulary: u64,
}

pub struct Net {
    shape: Shape,
    pool: BTreeMap<u64, BTreeSet<AddrRange>>,
    next: u64,
    pub ops: Vec<HostOp>,
    parameters: Vec<AddrRange>,
    moments: Vec<[AddrRange; 2]>,
    names: u64,
}

const F32: u64 = 4;

impl Net {
    pub fn new(shape: Shape) -> Self {
        let mut net = Self {
            shape,
            pool: BTreeMap::new(),
            next: 0x4000_0000,
            ops: Vec::new(),
            parameters: Vec::new(),
            moments: Vec::new(),
            names: 0,
        };
        let h = shape.hidden;
        let embedding = net.tensor(shape.vocabulary * h * F32);
        net.parameters.push(embedding);
        for _ in 0..shape.layers {
            for elements in [3 * h * h, h * h, 4 * h * h, 4 * h * h] {
                let weight = net.tensor(elements * F32);
                net.parameters.push(weight);
            }
        }
        for weight in net.parameters.clone() {
            net.launch(&[weight], 0.0);
        }
        net
    }

    fn tensor(&mut self, bytes: u64) -> AddrRange {
        let len = Bytes(bytes).round_up_to_blocks();
        let range = if let Some(range) = self.pool.get_mut(&len.get()).and_then(BTreeSet::pop_first) {
            range
        } else {
            let range = AddrRange::new(UmBlock(self.next).start(), len);
            self.next += range.blocks().len() as u64;
            self.ops.push(HostOp::Alloc(range));
            range
        };
        self.ops.push(HostOp::Pt(range, true));
        range
    }

    fn free(&mut self, range: AddrRange) {
        self.ops.push(HostOp::Pt(range, false));
        self.pool.entry(range.len.get()).or_default().insert(range);
    }

    fn launch(&mut self, tensors: &[AddrRange], flops: f64) {
        self.names += 1;
        self.ops.push(HostOp::Launch { name: self.names, tensors: tensors.to_vec(), uses: tensors.to_vec(), flops });
    }

    fn product(&mut self, a: AddrRange, b: AddrRange, to: AddrRange, m: u64, n: u64, k: u64) {
        self.launch(&[a, b, to], 2.0 * m as f64 * n as f64 * k as f64);
    }

    /// One iteration: forward, backward, optimizer. Kernel names repeat in each.
    pub fn iteration(&mut self) {
        self.names = 1_000;
        let Shape { layers, hidden: h, heads, tokens: t, sequence: s, vocabulary } = self.shape;
        let wide = |n: u64| t * n * F32;
        let scores = t / s * heads * s * s * F32;
        let mut x = self.tensor(wide(h));
        self.launch(&[self.parameters[0], x], 0.0);
        let mut kept = Vec::new();
        for layer in 0..layers {
            let [qkv_w, out_w, up_w, down_w] = self.layer(layer);
            let ln1 = self.tensor(wide(h));
            self.launch(&[x, ln1], 0.0);
            let qkv = self.tensor(wide(3 * h));
            self.product(ln1, qkv_w, qkv, t, 3 * h, h);
            let scored = self.tensor(scores);
            self.product(qkv, qkv, scored, t, s, h);
            let soft = self.tensor(scores);
            self.launch(&[scored, soft], 0.0);
            self.free(scored);
            let attended = self.tensor(wide(h));
            self.product(soft, qkv, attended, t, h, s);
            let y = self.tensor(wide(h));
            self.product(attended, out_w, y, t, h, h);
            self.launch(&[x, y], 0.0);
            let ln2 = self.tensor(wide(h));
            self.launch(&[y, ln2], 0.0);
            let up = self.tensor(wide(4 * h));
            self.product(ln2, up_w, up, t, 4 * h, h);
            let act = self.tensor(wide(4 * h));
            self.launch(&[up, act], 0.0);
            let z = self.tensor(wide(h));
            self.product(act, down_w, z, t, h, 4 * h);
            self.launch(&[y, z], 0.0);
            kept.push([x, ln1, qkv, soft, attended, y, ln2, up, act]);
            x = z;
        }
        let logits = self.tensor(wide(vocabulary));
        self.product(x, self.parameters[0], logits, t, vocabulary, h);
        let dlogits = self.tensor(wide(vocabulary));
        self.launch(&[logits, dlogits], 0.0);
        self.free(logits);
        let dx = self.tensor(wide(h));
        self.product(dlogits, self.parameters[0], dx, t, h, vocabulary);
        let mut grads = vec![self.tensor(vocabulary * h * F32)];
        self.product(dlogits, x, grads[0], vocabulary, h, t);
        self.free(dlogits);
        self.free(x);
        for layer in (0..layers).rev() {
            let [qkv_w, out_w, up_w, down_w] = self.layer(layer);
            let [x, ln1, qkv, soft, attended, y, ln2, up, act] = kept[layer];
            let wgrads = [3 * h * h, h * h, 4 * h * h, 4 * h * h].map(|n| self.tensor(n * F32));
            let dact = self.tensor(wide(4 * h));
            self.product(dx, down_w, dact, t, 4 * h, h);
            self.product(dx, act, wgrads[3], h, 4 * h, t);
            self.free(act);
            let dup = self.tensor(wide(4 * h));
            self.launch(&[dact, up, dup], 0.0);
            self.free(dact);
            self.free(up);
            let dln2 = self.tensor(wide(h));
            self.product(dup, up_w, dln2, t, h, 4 * h);
            self.product(dup, ln2, wgrads[2], 4 * h, h, t);
            self.free(dup);
            self.free(ln2);
            self.launch(&[dln2, y, dx], 0.0);
            self.free(y);
            let dattended = self.tensor(wide(h));
            self.product(dx, out_w, dattended, t, h, h);
            self.product(dx, attended, wgrads[1], h, h, t);
            self.free(attended);
            let dsoft = self.tensor(scores);
            let dqkv = self.tensor(wide(3 * h));
            self.product(dattended, qkv, dsoft, t, s, h);
            self.product(soft, dattended, dqkv, t, h, s);
            self.launch(&[soft, dsoft], 0.0);
            self.free(soft);
            self.product(dsoft, qkv, dqkv, t, h, s);
            self.free(dsoft);
            self.free(dattended);
            self.free(qkv);
            self.product(dqkv, qkv_w, dln2, t, h, 3 * h);
            self.product(dqkv, ln1, wgrads[0], 3 * h, h, t);
            self.free(dqkv);
            self.free(ln1);
            self.launch(&[dln2, x, dx], 0.0);
            self.free(dln2);
            self.free(x);
            grads.extend(wgrads);
        }
        self.free(dx);
        if self.moments.is_empty() {
            self.moments = self.parameters.clone().iter().map(|p| [(); 2].map(|()| self.tensor(p.len.get()))).collect();
        }
        // Multi-tensor: a launch for every few parameters.
        let order: Vec<usize> = (0..self.parameters.len()).collect();
        let grad_of = |parameter: usize| match parameter {
            0 => grads[0],
            n => grads[1 + (layers - 1 - (n - 1) / 4) * 4 + (n - 1) % 4],
        };
        for chunk in order.chunks(4) {
            let tensors: Vec<AddrRange> = chunk
                .iter()
                .flat_map(|&n| [self.parameters[n], grad_of(n), self.moments[n][0], self.moments[n][1]])
                .collect();
            self.launch(&tensors, 0.0);
        }
        for grad in grads {
            self.free(grad);
        }
    }

    fn layer(&self, layer: usize) -> [AddrRange; 4] {
        std::array::from_fn(|n| self.parameters[1 + layer * 4 + n])
    }

    /// Managed memory asked for so far.
    pub fn bytes(&self) -> Bytes {
        Bytes((self.next - 0x4000_0000) * UmBlock::SIZE.get())
    }
}
