//! Repeated parts of a payload: read from wire bytes without allocating, or lent by a caller who encodes.

use crate::decode::Reader;
use crate::encode::FrameWriter;
use crate::faults::DecodeError;

/// Something that a payload repeats. Only this crate implements it: a reader and a writer of frames are needed.
pub trait ListItem<'a>: Copy {
    /// Reads one item.
    #[doc(hidden)]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Writes one item; what does not fit makes the frame fail.
    #[doc(hidden)]
    fn write(&self, writer: &mut FrameWriter<'_>);
}

/// Items of a payload, in their order. Decoded, they stay wire bytes, every item of which was read once and found
/// good, so walking them cannot fail. To encode, lend a slice: `List::from(&items[..])`.
#[derive(Clone, Copy)]
pub struct List<'a, T> {
    source: Source<'a, T>,
}

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Wire { bytes: &'a [u8], count: usize },
    Lent(&'a [T]),
}

impl<'a, T: ListItem<'a>> List<'a, T> {
    /// How many items there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.source {
            Source::Wire { count, .. } => count,
            Source::Lent(items) => items.len(),
        }
    }

    /// Whether there is no item.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items in their order.
    #[must_use]
    pub fn iter(&self) -> Iter<'a, T> {
        Iter {
            source: match self.source {
                Source::Wire { bytes, count } => IterSource::Wire { reader: Reader::new(bytes), left: count },
                Source::Lent(items) => IterSource::Lent(items.iter()),
            },
        }
    }

    /// Reads `count` items off the front and keeps their bytes. The work is bounded by the bytes that are there: an
    /// item takes at least one, and a missing one ends the reading.
    pub(crate) fn read(reader: &mut Reader<'a>, count: usize) -> Result<Self, DecodeError> {
        let before = reader.rest();
        for _ in 0..count {
            T::read(reader)?;
        }
        let bytes = &before[..before.len() - reader.rest().len()];
        Ok(Self { source: Source::Wire { bytes, count } })
    }

    pub(crate) fn write(&self, writer: &mut FrameWriter<'_>) {
        for item in self.iter() {
            item.write(writer);
            if writer.is_failed() {
                return;
            }
        }
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(items: &'a [T]) -> Self {
        Self { source: Source::Lent(items) }
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self { source: Source::Lent(&[]) }
    }
}

/// Two lists are equal when their items are, wherever these stand.
impl<'a, T: ListItem<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a, T: ListItem<'a> + Eq> Eq for List<'a, T> {}

impl<'a, T: ListItem<'a> + std::fmt::Debug> std::fmt::Debug for List<'a, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: ListItem<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The items of a [`List`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    source: IterSource<'a, T>,
}

#[derive(Clone, Debug)]
enum IterSource<'a, T> {
    Wire { reader: Reader<'a>, left: usize },
    Lent(std::slice::Iter<'a, T>),
}

impl<'a, T: ListItem<'a>> Iterator for Iter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.source {
            IterSource::Wire { reader, left } => {
                *left = left.checked_sub(1)?;
                // Read once already when the list was decoded, so it is there.
                T::read(reader).ok()
            }
            IterSource::Lent(items) => items.next().copied(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.source {
            IterSource::Wire { left, .. } => *left,
            IterSource::Lent(items) => items.len(),
        };
        (left, Some(left))
    }
}

impl<'a, T: ListItem<'a>> ExactSizeIterator for Iter<'a, T> {}

impl ListItem<'_> for u64 {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u64("ownership_epoch")
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.u64(*self);
    }
}

impl<'a> ListItem<'a> for &'a [u8] {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.bytes16("topic name")
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.bytes16("topic name in bytes", self);
    }
}

#[cfg(test)]
mod tests {
    use super::List;
    use crate::decode::Reader;

    #[test]
    fn lists_are_equal_by_their_items_wherever_these_stand() {
        let wire = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        let read = List::<u64>::read(&mut Reader::new(&wire), 2).expect("two items are there");
        assert_eq!(read, List::from(&[1, 2][..]));
        assert_ne!(read, List::from(&[1, 3][..]));
        assert_ne!(read, List::from(&[1][..]));
        assert_eq!((read.len(), read.iter().len(), List::<u64>::default().is_empty()), (2, 2, true));
    }

    #[test]
    fn list_with_an_item_missing_is_refused() {
        let wire = [0; 15];
        List::<u64>::read(&mut Reader::new(&wire), 2).expect_err("the second item is cut");
        List::<u64>::read(&mut Reader::new(&wire), usize::MAX).expect_err("it ends with the bytes");
    }
}
