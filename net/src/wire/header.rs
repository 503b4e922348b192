//! Headers of requests and responses.
//!
//! The client id keeps the older int16 length in every version; only the tagged section behind it
//! depends on the API's version.

use super::field::{Field, Layout};
use super::{ApiKey, DecodeError, EncodeError, Reader, Writer};

/// What stands before each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Number of the API; maybe one that is not served.
    pub api_key: i16,
    /// Version of the API; maybe one that is not served.
    pub api_version: i16,
    /// Comes back in the response's header.
    pub correlation_id: i32,
    /// Name that the client gives itself; null is allowed.
    pub client_id: Option<String>,
}

/// What stands before each response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The request's.
    pub correlation_id: i32,
}

/// Strings of the header never are compact ones.
const CLIENT_ID_LAYOUT: Layout = Layout {
    version: 1,
    flexible: false,
};

impl RequestHeader {
    /// Reads the three numbers that have the same place in every version of everything.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn decode_start(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            api_key: reader.int16("RequestHeader.api_key")?,
            api_version: reader.int16("RequestHeader.api_version")?,
            correlation_id: reader.int32("RequestHeader.correlation_id")?,
            client_id: None,
        })
    }

    /// Reads what follows [`RequestHeader::decode_start`], for an API that is known.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode_rest(&mut self, api: ApiKey, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.client_id = Field::read(reader, CLIENT_ID_LAYOUT, "RequestHeader.client_id")?;
        if api.request_header_has_tags(self.api_version) {
            reader.skip_tags("RequestHeader")?;
        }
        Ok(())
    }

    /// Appends the header of a request of `api`.
    ///
    /// # Errors
    /// `TooLong` for a client id above 32,767 bytes.
    pub fn encode(&self, api: ApiKey, out: &mut Writer) -> Result<(), EncodeError> {
        out.put(&self.api_key.to_be_bytes());
        out.put(&self.api_version.to_be_bytes());
        out.int32(self.correlation_id);
        self.client_id
            .write(out, CLIENT_ID_LAYOUT, "RequestHeader.client_id")?;
        if api.request_header_has_tags(self.api_version) {
            out.uvarint(0);
        }
        Ok(())
    }
}

impl ResponseHeader {
    /// Reads the header of a response of `api` in `version`.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(api: ApiKey, version: i16, reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let correlation_id = reader.int32("ResponseHeader.correlation_id")?;
        if api.response_header_has_tags(version) {
            reader.skip_tags("ResponseHeader")?;
        }
        Ok(Self { correlation_id })
    }

    /// Appends the header of a response of `api` in `version`.
    pub fn encode(self, api: ApiKey, version: i16, out: &mut Writer) {
        out.int32(self.correlation_id);
        if api.response_header_has_tags(version) {
            out.uvarint(0);
        }
    }
}
