//! PTX text: the `.entry` declarations and their `.param` lists; the instructions are not looked at.
//!
//!     .visible .entry add(.param .u64 .ptr .global .align 16 add_param_0, .param .align 8 .b8 add_param_1[24])
//!
//! Offsets follow the ABI: each parameter at the next multiple of its alignment (PTX ISA, "Kernel Function Parameters").

use deepum_core::units::Bytes;

use super::{FatbinError, KernelInfo, Param};

/// The kernels of a PTX text, in order.
pub(super) fn kernels(text: &[u8]) -> Result<Vec<KernelInfo>, FatbinError> {
    let text = without_comments(text);
    let mut found = Vec::new();
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once(".entry") {
        const CUT: FatbinError = FatbinError::Damaged("PTX entry");
        let head = after.find(['(', '{', ';']).ok_or(CUT)?;
        let (name, list) = after.split_at(head);
        let mut params = Vec::new();
        rest = list;
        if let Some(list) = list.strip_prefix('(') {
            let (list, after) = list.split_once(')').ok_or(CUT)?;
            rest = after;
            let mut end = 0;
            for declaration in list.split(',').map(str::trim).filter(|d| !d.is_empty()) {
                let param = param(declaration, end).ok_or(FatbinError::Damaged("PTX parameter"))?;
                end = param.offset + param.size;
                params.push(param);
            }
        }
        let name = name.trim().to_owned();
        found.push(KernelInfo { name, params, static_shared: Bytes::ZERO, registers: 0, max_threads: 0 });
    }
    Ok(found)
}

/// One `.param` declaration, placed after the first `end` bytes.
fn param(declaration: &str, end: u32) -> Option<Param> {
    /// More than any architecture takes (32,764 bytes).
    const MAX: u32 = 1 << 16;
    let mut words = declaration.split_whitespace();
    (words.next()? == ".param").then_some(())?;
    let (mut element, mut align, mut pointer) = (None, None, false);
    let mut name = "";
    while let Some(word) = words.next() {
        match word {
            // The alignment after `.ptr` is that of the memory pointed to.
            ".ptr" => pointer = true,
            ".align" => {
                let n: u32 = words.next()?.parse().ok().filter(|n: &u32| n.is_power_of_two() && *n <= 128)?;
                if !pointer {
                    align = Some(n);
                }
            }
            _ if word.starts_with('.') => element = element_size(word).or(element),
            _ => name = word,
        }
    }
    let element = element?;
    let count = match name.split_once('[') {
        Some((_, count)) => count.trim_end_matches(']').parse().ok().filter(|&n: &u32| n <= MAX)?,
        None => 1,
    };
    let offset = end.checked_next_multiple_of(align.unwrap_or(element))?;
    let size = element * count;
    (offset + size <= MAX).then_some(Param { offset, size })
}

fn element_size(word: &str) -> Option<u32> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

/// The text with comments blanked, as far as a NUL if there is one.
fn without_comments(text: &[u8]) -> String {
    let text = text.split(|&b| b == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        out.push_str(&rest[..at]);
        out.push(' ');
        let close = if rest[at..].starts_with("//") { "\n" } else { "*/" };
        rest = rest[at + 2..].split_once(close).map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}
