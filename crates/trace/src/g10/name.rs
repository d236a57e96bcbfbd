//! Which of G10's profiles: `g10:DIR:MODEL:BATCH`.
//!
//! Model and batch are the last two fields, so that a folder's name may have colons in it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A profile's name: the folder that all of them are in, the model, the batch size.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct G10Name {
    folder: PathBuf,
    model: Box<str>,
    batch: u32,
}

/// Why something is no name of a profile.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name:?} names no profile of G10: {why}; it is g10:DIR:MODEL:BATCH")]
pub struct NameError {
    name: String,
    why: &'static str,
}

impl G10Name {
    /// The profile of `model` with this batch size, in `folder`.
    ///
    /// # Errors
    /// If it would not be read again as it is printed: an empty folder, a model that is no name of a folder, no batch.
    pub fn new(folder: &Path, model: &str, batch: u32) -> Result<Self, NameError> {
        let name = Self { folder: folder.to_owned(), model: model.into(), batch };
        let wrong = if folder.as_os_str().is_empty() {
            "no folder"
        } else if model.is_empty() || model.contains(['/', ':', '\0']) || model.starts_with('.') {
            "the model must be the name of a folder"
        } else if batch == 0 {
            "the batch is a number from 1"
        } else {
            return Ok(name);
        };
        Err(NameError { name: name.to_string(), why: wrong })
    }

    /// The folder that all profiles are in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
    /// The model, which is the name of a folder.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }
    /// The batch size.
    #[must_use]
    pub const fn batch(&self) -> u32 {
        self.batch
    }
    /// `MODEL-BATCH`: what tables call it.
    #[must_use]
    pub fn point(&self) -> String {
        format!("{}-{}", self.model, self.batch)
    }

    /// A dump of the artifact's front end, gzipped: `what` is `kernels` or `tensors`.
    pub(super) fn derived(&self, what: &str) -> PathBuf {
        self.folder.join("derived").join(&*self.model).join(format!("{}-{what}.config.gz", self.batch))
    }
    /// A file of figures by kernel: `what` is nothing, `InputPF`, `PF` or `Workspace`.
    pub(super) fn results(&self, what: &str) -> PathBuf {
        self.folder.join("results").join(&*self.model).join(format!("cudnn{}{what}.txt", self.batch))
    }
}

impl FromStr for G10Name {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let wrong = |why| NameError { name: name.to_owned(), why };
        let fields = name.strip_prefix("g10:").ok_or_else(|| wrong("it does not begin with g10:"))?;
        let mut fields = fields.rsplitn(3, ':');
        let (Some(batch), Some(model), Some(folder)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(wrong("a field is missing"));
        };
        let digits = batch.bytes().all(|b| b.is_ascii_digit()) && !batch.starts_with('0');
        let batch = batch.parse().ok().filter(|_| digits).ok_or_else(|| wrong("the batch is a number from 1"))?;
        Self::new(Path::new(folder), model, batch).map_err(|error| wrong(error.why))
    }
}

impl fmt::Display for G10Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g10:{}:{}:{}", self.folder.display(), self.model, self.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_fields_are_model_and_batch_and_a_name_prints_as_it_was_read() {
        let name: G10Name = "g10:/a:b/c:BERT_Base:256".parse().unwrap();
        assert_eq!((name.folder(), name.model(), name.batch()), (Path::new("/a:b/c"), "BERT_Base", 256));
        assert_eq!((name.to_string(), name.point()), ("g10:/a:b/c:BERT_Base:256".into(), "BERT_Base-256".into()));
        assert_eq!(name.derived("kernels"), Path::new("/a:b/c/derived/BERT_Base/256-kernels.config.gz"));
        assert_eq!(name.results("PF"), Path::new("/a:b/c/results/BERT_Base/cudnn256PF.txt"));
    }

    #[test]
    fn what_names_no_profile_is_refused_with_what_is_wrong() {
        let wrong = [
            ("BERT_Base:256", "it does not begin with g10:"),
            ("g10:BERT_Base:256", "a field is missing"),
            ("g10::BERT_Base:256", "no folder"),
            ("g10:d:BERT_Base:", "the batch is a number from 1"),
            ("g10:d:BERT_Base:0", "the batch is a number from 1"),
            ("g10:d:BERT_Base:+1", "the batch is a number from 1"),
            ("g10:d:BERT_Base:01", "the batch is a number from 1"),
            ("g10:d:BERT_Base:4294967296", "the batch is a number from 1"),
            ("g10:d::1", "the model must be the name of a folder"),
            ("g10:d:..:1", "the model must be the name of a folder"),
            ("g10:d:a/b:1", "the model must be the name of a folder"),
        ];
        for (name, why) in wrong {
            let error = name.parse::<G10Name>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{name:?} names no profile of G10: {why}; it is g10:DIR:MODEL:BATCH")
            );
        }
    }
}
