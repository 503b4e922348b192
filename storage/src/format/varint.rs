//! Kafka's variable-length integers: 7 bits per byte, low bits first, the high bit says that more
//! follow. Signed ones are zigzag: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...

/// Takes an unsigned number of up to 64 bits from the front of `bytes`. `None` if it is cut off or
/// has more bits than fit.
pub(crate) fn take_unsigned(bytes: &mut &[u8]) -> Option<u64> {
    // Nearly every number in a record is this small.
    if let Some((&byte, rest)) = bytes.split_first()
        && byte < 0x80
    {
        *bytes = rest;
        return Some(byte.into());
    }
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Takes a zigzag number of up to 64 bits.
pub(crate) fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    let raw = take_unsigned(bytes)?;
    Some((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
}

/// Takes a zigzag number of up to 32 bits.
pub(crate) fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    let mut rest = *bytes;
    let value = i32::try_from(take_i64(&mut rest)?).ok()?;
    *bytes = rest;
    Some(value)
}

/// Appends an unsigned number.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Appends a zigzag number.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zigzag_numbers_have_kafkas_bytes_and_come_back() {
        let cases: [(i64, &[u8]); 7] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (29, &[0x3a]),
            (64, &[0x80, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (
                i64::MIN,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            ),
        ];
        for (value, bytes) in cases {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            let mut rest = bytes;
            assert_eq!(take_i64(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn cut_or_overlong_numbers_are_refused_and_take_nothing() {
        for bytes in [&[][..], &[0x80][..], &[0xff; 11][..], &[0xff; 10][..]] {
            let mut rest = bytes;
            assert_eq!(take_unsigned(&mut rest), None);
            assert_eq!(rest.len(), bytes.len());
        }
        let mut too_large: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x1f];
        assert_eq!(take_i32(&mut too_large), None);
        assert_eq!(too_large.len(), 5);
    }
}
