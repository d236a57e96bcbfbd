//! Element types of an elementwise operation, from the text of its functor type.
//!
//! An elementwise kernel's data is an array of untyped pointers; what they point to follows from the argument and
//! result types of the functor. Argument types are in the name of a lambda or in the template arguments of a functor struct;
//! the result type of a lambda is in no name, so it is the first argument's, but for the operations listed here.
//! Source: the operations' files in `aten/src/ATen/native/cuda`.

use super::name::{element_size, split, template};

/// Element sizes of an operation: its one result, and its arguments in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Elements {
    pub(super) result: u32,
    pub(super) arguments: Vec<u32>,
}

/// Operations on any type whose result is `bool`.
const TO_BOOL: [&str; 6] =
    ["logical_not_kernel", "signbit_kernel", "isposinf_kernel", "isneginf_kernel", "isnan_kernel", "isfinite_kernel"];

/// Copies that convert by themselves: part of the name, and the result's size.
const CONVERTING: [(&str, u32); 5] = [
    ("bfloat16tofloat32_copy_kernel", 4),
    ("float16tofloat32_copy_kernel", 4),
    ("bfloat16_copy_kernel", 2),
    ("float16_copy_kernel", 2),
    ("float8_copy_kernel", 1),
];

/// The elements of the functor type `text` with `arguments` tensor arguments; `None` if the text does not tell.
pub(super) fn elements(text: &str, arguments: usize) -> Option<Elements> {
    let found = match lambda(text) {
        Some(types) => from_lambda(text, &types)?,
        None => from_struct(text, arguments)?,
    };
    (found.arguments.len() == arguments).then_some(found)
}

/// The parameter types of the lambda that `text` ends with.
fn lambda(text: &str) -> Option<Vec<String>> {
    let rest = text.strip_suffix('}').or_else(|| {
        let (head, number) = text.rsplit_once('#')?;
        number.strip_suffix('}').filter(|n| n.bytes().all(|b| b.is_ascii_digit()))?;
        Some(head)
    })?;
    let (_, types) = rest.rsplit_once("{lambda(")?;
    let (types, _) = types.rsplit_once(')')?;
    Some(split(types))
}

fn from_lambda(text: &str, types: &[String]) -> Option<Elements> {
    let arguments: Vec<u32> = types.iter().map(|t| element_size(t)).collect::<Option<_>>()?;
    let of = |names: &[&str]| names.iter().any(|n| text.contains(n));
    let result = if of(&TO_BOOL) {
        1
    } else if let Some((_, size)) = CONVERTING.iter().find(|(n, _)| text.contains(n)) {
        *size
    } else if let Some((_, rest)) = text.split_once("converting_copy_kernel_cuda<") {
        // <from, to>
        element_size(split(rest.split_once(">(")?.0).get(1)?)?
    } else if text.contains("where_kernel_impl") {
        *arguments.get(1)?
    } else if of(&["complex_kernel_cuda", "polar_kernel_cuda"]) {
        arguments.first()? * 2
    } else {
        *arguments.first()?
    };
    Some(Elements { result, arguments })
}

fn from_struct(text: &str, arguments: usize) -> Option<Elements> {
    let (name, args) = template(text)?;
    let size = |n: usize| args.get(n).and_then(|t| element_size(t));
    Some(match name {
        // <argument 1, argument 2, result, operation>; in the unary ones the other argument is a number.
        "BinaryFunctor" => Elements { result: size(2)?, arguments: vec![size(0)?, size(1)?] },
        "AUnaryFunctor" => Elements { result: size(2)?, arguments: vec![size(1)?] },
        "BUnaryFunctor" => Elements { result: size(2)?, arguments: vec![size(0)?] },
        _ if name.starts_with("Compare") => Elements { result: 1, arguments: vec![size(0)?; arguments] },
        _ => Elements { result: size(0)?, arguments: vec![size(0)?; arguments] },
    })
}

/// Bytes of a `c10::ScalarType`, as kernels that convert carry it. Source: `torch/headeronly/core/ScalarType.h`.
pub(super) fn scalar_type(code: u8) -> Option<u32> {
    Some(match code {
        0 | 1 | 11 | 12 | 13 | 16..=21 | 23..=26 | 30..=44 => 1,
        2 | 5 | 15 | 22 | 27 => 2,
        3 | 6 | 8 | 14 | 28 => 4,
        4 | 7 | 9 | 29 => 8,
        10 => 16,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, arguments: usize, expected: Option<(u32, &[u32])>) {
        let expected = expected.map(|(result, a)| Elements { result, arguments: a.to_vec() });
        assert_eq!(elements(text, arguments), expected, "{text}");
    }

    #[test]
    fn types_come_from_the_text_of_the_functor() {
        let gelu = "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() \
                    const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}";
        check(gelu, 1, Some((2, &[2])));
        check(gelu, 2, None);
        check("at::native::CUDAFunctor_add<float>", 2, Some((4, &[4, 4])));
        check("at::native::FillFunctor<double>", 0, Some((8, &[])));
        let mul = "at::native::binary_internal::MulFunctor<float>";
        check(&format!("at::native::BinaryFunctor<float, float, float, {mul}>"), 2, Some((4, &[4, 4])));
        check(
            "at::native::AUnaryFunctor<c10::Half, c10::Half, bool, at::native::CompareEqFunctor<c10::Half>>",
            1,
            Some((1, &[2])),
        );
        check("at::native::CompareFunctor<long>", 2, Some((1, &[8, 8])));
        check(
            "at::native::where_kernel_impl(at::TensorIterator&)::{lambda()#1}::operator()() const::{lambda(bool, float, float)#1}",
            3,
            Some((4, &[1, 4, 4])),
        );
        check(
            "at::native::converting_copy_kernel_cuda<float, c10::BFloat16>(at::TensorIteratorBase&)::{lambda(float)#1}",
            1,
            Some((2, &[4])),
        );
        check(
            "at::native::logical_not_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(long)#1}",
            1,
            Some((1, &[8])),
        );
        check("at::native::some_struct_without_arguments", 1, None);
        check("at::native::opaque(at::Tensor&)::{lambda(at::Tensor)#1}", 1, None);
    }
}
