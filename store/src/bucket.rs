//! A bucket that speaks S3: Amazon's, or one of the many that answer alike (MinIO, Ceph, R2), which the usual variables name.
//!
//! Key type: [`Bucket`], over the `object_store` crate. Its asynchronous calls end here: each operation runs on a small runtime that
//! belongs to the store, one at a time; who must not wait for the operations of others opens a store of its own.

use std::sync::{Mutex, PoisonError};

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
};

use crate::place::object;
use crate::{CONNECT, Error, LARGEST, PATIENCE, REQUEST, RETRIES};

/// What servers say of a bucket that there is not.
const NO_BUCKET: &str = "NoSuchBucket";

/// A bucket.
pub struct Bucket {
    client: AmazonS3,
    runtime: Mutex<tokio::runtime::Runtime>,
    /// Its name and the prefix, for messages.
    name: String,
    prefix: String,
}

impl std::fmt::Debug for Bucket {
    // Without the client, which knows secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Bucket {
    pub fn open(bucket: &str, prefix: &str) -> Result<Bucket, Error> {
        let name = format!("s3://{bucket}/{}", prefix.trim_end_matches('/'));
        let failed = |why: String| {
            Error {
            operation: "open",
            object: name.clone(),
            why,
            help: "the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL say which \
                   server is asked and as whom; AWS_ALLOW_HTTP=true allows one without TLS"
                .to_owned(),
        }
        };
        // Another part of the program may have chosen one; either will do.
        let _ignored = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: std::time::Duration::from_millis(200),
                max_backoff: std::time::Duration::from_secs(3),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: PATIENCE,
        };
        let allow =
            std::env::var("AWS_ALLOW_HTTP").is_ok_and(|v| matches!(&*v, "1" | "true" | "TRUE" | "yes"));
        let options =
            ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT).with_allow_http(allow);
        let client = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_client_options(options)
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = Mutex::new(runtime.map_err(|error| failed(error.to_string()))?);
        Ok(Bucket { client, runtime, prefix: prefix.to_owned(), name })
    }

    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let read = self.wait(async {
            let found = self.client.get(&self.path(key)).await?;
            let size = found.meta.size;
            if size > LARGEST {
                return Ok(Err(size));
            }
            found.bytes().await.map(|bytes| Ok(bytes.to_vec()))
        });
        match read {
            Ok(Ok(bytes)) => Ok(Some(bytes)),
            Ok(Err(size)) => Err(Error {
                operation: "read",
                object: object(&self.name, key),
                why: format!("it has {size} bytes, more than {LARGEST}"),
                help: "take it out of the store".to_owned(),
            }),
            // A bucket that there is not is no object that there is not.
            Err(error @ object_store::Error::NotFound { .. }) if !causes(&error).contains(NO_BUCKET) => {
                Ok(None)
            }
            Err(error) => Err(self.error("read", key, &error)),
        }
    }

    pub fn put(&self, key: &str, bytes: &[u8]) -> Result<(), Error> {
        let written = self.wait(self.client.put(&self.path(key), bytes.to_vec().into()));
        written.map(drop).map_err(|error| self.error("write", key, &error))
    }

    pub fn create(&self, key: &str, bytes: &[u8]) -> Result<bool, Error> {
        let options = PutOptions::from(PutMode::Create);
        let path = self.path(key);
        match self.wait(self.client.put_opts(&path, bytes.to_vec().into(), options)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(false)
            }
            Err(error) => Err(self.error("create", key, &error)),
        }
    }

    pub fn remove(&self, key: &str) -> Result<(), Error> {
        match self.wait(self.client.delete(&self.path(key))) {
            Ok(()) => Ok(()),
            // As of an object that is read.
            Err(error @ object_store::Error::NotFound { .. }) if !causes(&error).contains(NO_BUCKET) => {
                Ok(())
            }
            Err(error) => Err(self.error("remove", key, &error)),
        }
    }

    pub fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let below = self.path(prefix.trim_end_matches('/'));
        let mut keys = Vec::new();
        let listed = self.wait(async {
            let mut stream = self.client.list(Some(&below));
            while let Some(next) = next(&mut stream).await {
                keys.push(next?.location.to_string());
            }
            Ok(())
        });
        listed.map_err(|error: object_store::Error| self.error("list", prefix, &error))?;
        Ok(keys.iter().filter_map(|key| key.strip_prefix(&self.prefix)).map(str::to_owned).collect())
    }

    fn path(&self, key: &str) -> Path {
        Path::from(format!("{}{key}", self.prefix))
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        // An operation that panicked has left the runtime as it was.
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).block_on(work)
    }

    fn error(&self, operation: &'static str, key: &str, error: &object_store::Error) -> Error {
        use object_store::Error as E;
        let why = causes(error);
        let help = match error {
            // Where Amazon's machines would have credentials for their programs.
            _ if why.contains("169.254.169.254") => {
                "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned()
            }
            E::Unauthenticated { .. } | E::PermissionDenied { .. } => {
                "see whether AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY may do this in the bucket".to_owned()
            }
            E::NotFound { .. } => {
                "make the bucket, or see whether its name and AWS_REGION are right".to_owned()
            }
            E::NotImplemented { .. } | E::NotSupported { .. } => {
                "the server must know conditional writes (If-None-Match), which decide between workers"
                    .to_owned()
            }
            _ => format!(
                "it was tried {} times at most, over {} s; see whether the server can be reached (AWS_ENDPOINT_URL, AWS_REGION, \
                 credentials) and try again",
                RETRIES + 1,
                PATIENCE.as_secs()
            ),
        };
        Error { operation, object: object(&self.name, key), why, help }
    }
}

/// The next one of a stream.
async fn next<S: futures_core::Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context)).await
}

/// An error with what it comes from, each said once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
