from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReplicaRequest(_message.Message):
    __slots__ = ("datastore",)
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    def __init__(self, datastore: _Optional[str] = ...) -> None: ...

class EpochRequest(_message.Message):
    __slots__ = ("datastore", "epoch")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    epoch: int
    def __init__(self, datastore: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class ReplicaState(_message.Message):
    __slots__ = ("epoch", "leads", "data_epoch", "position", "copies", "followers")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    DATA_EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    leads: bool
    data_epoch: int
    position: int
    copies: int
    followers: int
    def __init__(self, epoch: _Optional[int] = ..., leads: _Optional[bool] = ..., data_epoch: _Optional[int] = ..., position: _Optional[int] = ..., copies: _Optional[int] = ..., followers: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("datastore", "epoch", "held", "more", "position")
    DATASTORE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    datastore: str
    epoch: int
    held: bytes
    more: bool
    position: int
    def __init__(self, datastore: _Optional[str] = ..., epoch: _Optional[int] = ..., held: _Optional[bytes] = ..., more: _Optional[bool] = ..., position: _Optional[int] = ...) -> None: ...

class FollowReply(_message.Message):
    __slots__ = ("identity", "epoch", "records", "more", "position")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    identity: StoreIdentity
    epoch: int
    records: bytes
    more: bool
    position: int
    def __init__(self, identity: _Optional[_Union[StoreIdentity, _Mapping]] = ..., epoch: _Optional[int] = ..., records: _Optional[bytes] = ..., more: _Optional[bool] = ..., position: _Optional[int] = ...) -> None: ...

class StoreIdentity(_message.Message):
    __slots__ = ("vocab_size", "order_depth", "tokenizer", "group_secret")
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    ORDER_DEPTH_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    GROUP_SECRET_FIELD_NUMBER: _ClassVar[int]
    vocab_size: int
    order_depth: int
    tokenizer: str
    group_secret: str
    def __init__(self, vocab_size: _Optional[int] = ..., order_depth: _Optional[int] = ..., tokenizer: _Optional[str] = ..., group_secret: _Optional[str] = ...) -> None: ...
