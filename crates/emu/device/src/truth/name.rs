//! Kernel names: what a mangled C++ name says about a kernel's parameters.
//!
//! `void at::native::reduce_kernel<512, 1, …>(at::native::ReduceOp<float, …>)` gives the family (`reduce_kernel`), its
//! template arguments, and the type of every parameter: element sizes, and which pointers are `const`.
//! What the text says about sizes is checked against the sizes in the fatbin before anything relies on it.

use cpp_demangle::{ParseOptions, Symbol};

use crate::fatbin::Param;

/// A demangled kernel name, taken apart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Signature {
    /// The function's own name, without namespaces and template arguments.
    pub family: String,
    /// Its template arguments.
    pub args: Vec<String>,
    /// Types of its parameters. Empty for names that are not C++ (Triton, `extern "C"`).
    pub params: Vec<String>,
    /// The whole demangled text, anonymous namespaces left out.
    pub text: String,
}

impl Signature {
    /// Takes `mangled` apart; a name that is not mangled C++ is its own family.
    #[must_use]
    pub fn of(mangled: &str) -> Self {
        // Functors inside functors nest deeply in PyTorch; the default limit of the demangler is for debug builds' stacks.
        let options = ParseOptions::default().recursion_limit(512);
        let text = Symbol::new_with_options(mangled, &options)
            .ok()
            .and_then(|s| s.demangle().ok())
            .map_or_else(|| mangled.to_owned(), |t| t.replace("(anonymous namespace)::", ""));
        let text = text.strip_prefix("void ").unwrap_or(&text).to_owned();
        let (mut family, mut args, mut params) = (String::new(), Vec::new(), Vec::new());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(['<', '(', ':']) {
            family.push_str(&rest[..at]);
            let (inner, after) = match &rest[at..=at] {
                ":" => {
                    family.clear();
                    args.clear();
                    rest = rest[at..].trim_start_matches(':');
                    continue;
                }
                _ => match bracketed(&rest[at..]) {
                    Some(found) => found,
                    None => break,
                },
            };
            if rest[at..].starts_with('<') {
                args = split(inner);
            } else {
                params = split(inner);
                break;
            }
            rest = after;
        }
        if family.is_empty() {
            family.clone_from(&text);
        }
        Self { family, args, params, text }
    }

    /// Whether the fatbin's layout can be that of these parameter types: same number, and the right size
    /// for every type whose size is known here.
    #[must_use]
    pub fn agrees(&self, layout: &[Param]) -> bool {
        self.params.len() == layout.len()
            && self
                .params
                .iter()
                .zip(layout)
                .all(|(text, param)| size_of_type(text).is_none_or(|size| size == param.size))
    }
}

/// Size of a parameter of type `text`, where it is a pointer or a number.
fn size_of_type(text: &str) -> Option<u32> {
    if text.ends_with('*') || text.ends_with('&') { Some(8) } else { element_size(text) }
}

/// What a pointer type points to, and whether it is `const`.
#[must_use]
pub fn pointee(text: &str) -> Option<(&str, bool)> {
    let inner = text.strip_suffix('*')?.trim_end();
    let plain = inner.strip_suffix(" const").map(|t| (t, true));
    Some(plain.unwrap_or((inner.strip_suffix(" volatile").unwrap_or(inner), false)))
}

/// Bytes of one element of the C++ type `text`; `None` for types that are no numbers.
#[must_use]
pub fn element_size(text: &str) -> Option<u32> {
    let text = text.trim().trim_end_matches(" const");
    Some(match text {
        "bool" | "char" | "signed char" | "unsigned char" | "c10::qint8" | "c10::quint8" => 1,
        "short" | "unsigned short" | "c10::Half" | "c10::BFloat16" | "__half" | "__nv_bfloat16" => 2,
        "torch::headeronly::Half" | "torch::headeronly::BFloat16" => 2,
        "cutlass::half_t" | "cutlass::bfloat16_t" => 2,
        "int" | "unsigned int" | "float" | "c10::qint32" | "cutlass::tfloat32_t" => 4,
        "long" | "unsigned long" | "long long" | "unsigned long long" | "double" | "int2" | "float2" => 8,
        _ => {
            if text.starts_with("c10::Float8_") {
                return Some(1);
            }
            let (name, inner) = text.split_once('<')?;
            let inner = split(inner.strip_suffix('>').or_else(|| inner.split_once(">::").map(|(i, _)| i))?);
            let first = inner.first()?;
            match name {
                "c10::complex" => 2 * element_size(first)?,
                _ if name.ends_with("OpaqueType") => first.rsplit(')').next()?.trim_end_matches('u').parse().ok()?,
                // On CUDA: floats of up to 32 bits in float, integers in 64 bits.
                "at::AccumulateType" | "at::AccumulateTypeDevice" => match first.as_str() {
                    "c10::Half" | "c10::BFloat16" | "float" => 4,
                    "c10::complex<float>" => 8,
                    "c10::complex<double>" => 16,
                    _ => 8,
                },
                "std::conditional" if first == "true" => element_size(inner.get(1)?)?,
                "std::conditional" if first == "false" => element_size(inner.get(2)?)?,
                _ => return None,
            }
        }
    })
}

/// The inside of the bracket that `text` starts with, and what follows it.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((&text[1..at], &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// The parts of a list between its outermost commas.
#[must_use]
pub fn split(list: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0usize, 0);
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(list[start..at].trim().to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = list[start..].trim();
    if !last.is_empty() {
        parts.push(last.to_owned());
    }
    parts
}

/// Name and arguments of a template type: `at::native::FillFunctor<float>` is `("FillFunctor", ["float"])`.
#[must_use]
pub fn template(text: &str) -> Option<(&str, Vec<String>)> {
    let at = text.find('<')?;
    let (inner, after) = bracketed(&text[at..])?;
    let name = text[..at].rsplit("::").next()?;
    after.trim().is_empty().then(|| (name, split(inner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart() {
        let s = Signature::of(
            "_ZN2at6native53_GLOBAL__N__4da244e1_20_layer_norm_kernel_cu_9c5ada8a28vectorized_layer_norm_kernelIffLb0EEEviT0_PKT_S6_S6_PS3_S7_PS4_",
        );
        assert_eq!(s.family, "vectorized_layer_norm_kernel");
        assert_eq!(s.args, ["float", "float", "false"]);
        assert_eq!(
            s.params,
            ["int", "float", "float const*", "float const*", "float const*", "float*", "float*", "float*"]
        );
    }

    #[test]
    fn a_name_that_is_not_cpp_is_its_own_family() {
        let s = Signature::of("triton_poi_fused_add_0");
        assert_eq!((s.family.as_str(), s.params.len()), ("triton_poi_fused_add_0", 0));
    }

    #[test]
    fn element_sizes_are_those_of_the_types() {
        for (text, size) in [
            ("float", Some(4)),
            ("c10::BFloat16 const", Some(2)),
            ("c10::complex<double>", Some(16)),
            ("at::native::OpaqueType<(unsigned int)16>", Some(16)),
            ("at::AccumulateType<c10::BFloat16, true>::type", Some(4)),
            ("at::native::ReduceOp<float>", None),
        ] {
            assert_eq!(element_size(text), size, "{text}");
        }
        assert_eq!(pointee("long const*"), Some(("long", true)));
        assert_eq!(pointee("float volatile*"), Some(("float", false)));
        assert_eq!(pointee("int"), None);
    }

    #[test]
    fn the_fatbin_may_contradict_the_name() {
        let s = Signature::of("_Z3addPKfPfi");
        let param = |offset, size| Param { offset, size };
        assert!(s.agrees(&[param(0, 8), param(8, 8), param(16, 4)]));
        assert!(!s.agrees(&[param(0, 8), param(8, 8), param(16, 8)]));
        assert!(!s.agrees(&[param(0, 8), param(8, 8)]));
    }
}
