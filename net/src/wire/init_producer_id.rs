//! InitProducerId (api key 22): a producer asks for the id under which its batches are told apart.

use super::message::{message, whole_messages};
use quorate_raft::ErrorCode;

whole_messages! {
    InitProducerIdRequest: InitProducerId 0 - 6;
    InitProducerIdResponse: InitProducerId 0 - 6;
}

message! {
    /// Asks for a producer id.
    pub struct InitProducerIdRequest {
        /// Of a transactional producer; null for one that is only idempotent.
        transactional_id: Option<String> [0 +] [nullable 0];
        /// After which a transaction is aborted, in ms; without meaning otherwise.
        transaction_timeout_ms: i32 [0 +];
        /// The id that the producer has and wants a newer epoch for; -1 if it has none.
        producer_id: i64 [3 +] [default -1];
        /// The epoch that it has; -1 if it has none.
        producer_epoch: i16 [3 +] [default -1];
        /// Whether its transactions are prepared and decided from outside (KIP-939).
        enable_2pc: bool [6 +];
        /// Whether a transaction that is prepared goes on.
        keep_prepared_txn: bool [6 +];
    }

    /// Answer to an InitProducerId.
    pub struct InitProducerIdResponse {
        /// How long the client was held back, in ms.
        throttle_time_ms: i32 [0 +] [ignorable];
        /// NONE, or why there is no id.
        error_code: ErrorCode [0 +];
        /// The id; -1 with an error.
        producer_id: i64 [0 +] [default -1];
        /// Its epoch.
        producer_epoch: i16 [0 +];
        /// Id under which a prepared transaction goes on; -1 for none.
        ongoing_txn_producer_id: i64 [6 +] [default -1];
        /// Its epoch; -1 for none.
        ongoing_txn_producer_epoch: i16 [6 +] [default -1];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::{decode_message, encode_message};
    use crate::wire::{Reader, Writer};

    /// The oracle of the other tests knows the request to version 5 only.
    #[test]
    fn version_6_has_its_fields_where_kafkas_schema_has_them() {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            producer_id: 1,
            producer_epoch: 2,
            enable_2pc: true,
            keep_prepared_txn: false,
        };
        let mut out = Writer::new();
        encode_message(&request, 6, &mut out).unwrap();
        let bytes = [
            &[0, 0, 0, 0xea, 0x60][..],
            &1_i64.to_be_bytes(),
            &[0, 2, 1, 0, 0],
        ];
        assert_eq!(out.as_bytes(), bytes.concat());
        let bytes = bytes.concat().into();
        let read = decode_message(6, &mut Reader::new(&bytes));
        assert_eq!(read, Ok(request));
    }
}
