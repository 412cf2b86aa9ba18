# SPDX-License-Identifier: Apache-2.0
"""Every kind of tensor is used where it lies; each bad one is refused with the cause."""
import ctypes
from array import array

import libddp
from libddp import low
from libddp._tensor import lend
from support import Test, main


class Device:
    def __init__(self, kind, index=None):
        self.type, self.index = kind, index


class Torch:
    """A stand-in for a torch tensor: the attributes that are looked at."""

    dtype, layout, device, shape = "torch.bfloat16", "torch.strided", Device("cpu"), (2, 3)

    def __init__(self, address=4096, **other):
        self.address = address
        self.__dict__.update(other)

    def data_ptr(self):
        return self.address

    def is_contiguous(self):
        return self.stride() == (3, 1)

    def stride(self):
        return self.__dict__.get("strides", (3, 1))


class Interface:
    def __init__(self, cuda=False, **other):
        about = {"version": 3, "typestr": "<f4", "shape": (2, 3), "data": (8192, False), "strides": None, **other}
        setattr(self, "__cuda_array_interface__" if cuda else "__array_interface__", about)


class Dlpack:
    """Lends a capsule made by the package itself."""

    def __init__(self, code=2, bits=32, dtype=low.DDP_F32):
        self.memory = (ctypes.c_float * 6)()
        self.code, self.bits, self.dtype = code, bits, dtype

    def __dlpack__(self, stream=None):  # the first version of the protocol has no max_version
        return low.make_dlpack(self, (ctypes.addressof(self.memory), self.dtype, low.DDP_CPU, 0, (2, 3)), self.code, self.bits)


class Accepted(Test):
    def test_the_buffer_protocol(self):
        values = array("d", [1, 2, 3])
        found = lend(values)
        self.assertEqual(found.tensor, (values.buffer_info()[0], low.DDP_F64, low.DDP_CPU, 0, (3,)))
        for code, dtype in (("f", low.DDP_F32), ("q", low.DDP_I64), ("i", low.DDP_I32), ("B", low.DDP_U8)):
            self.assertEqual(lend(array(code, [0, 1])).dtype, dtype)
        self.assertEqual(lend(bytearray(5)).shape, (5,))

    def test_shapes_and_axes_of_length_one(self):
        values = memoryview(array("f", range(6))).cast("B").cast("f", (2, 1, 3))
        self.assertEqual(lend(values).shape, (2, 1, 3))
        odd = Interface(shape=(1, 6), strides=(999, 4))
        self.assertEqual(lend(odd).shape, (1, 6))
        self.assertEqual(lend(Interface(shape=(0, 6), strides=(1, 1))).shape, (0, 6))

    def test_torch_by_its_own_attributes(self):
        self.assertEqual(lend(Torch()).tensor, (4096, low.DDP_BF16, low.DDP_CPU, 0, (2, 3)))
        cuda = Torch(device=Device("cuda", 3), dtype="torch.float16")
        self.assertEqual(lend(cuda).tensor, (4096, low.DDP_F16, low.DDP_CUDA, 3, (2, 3)))

    def test_array_interfaces(self):
        self.assertEqual(lend(Interface()).tensor, (8192, low.DDP_F32, low.DDP_CPU, 0, (2, 3)))
        self.assertEqual(lend(Interface(cuda=True)).tensor, (8192, low.DDP_F32, low.DDP_CUDA, 0, (2, 3)))

    def test_dlpack_and_the_capsule_stays_whole(self):
        lender = Dlpack()
        self.assertEqual(lend(lender).tensor, (ctypes.addressof(lender.memory), low.DDP_F32, low.DDP_CPU, 0, (2, 3)))
        self.assertEqual(lend(Dlpack(4, 16)).dtype, low.DDP_BF16)

    def test_the_librarys_own_memory_of_any_dtype(self):
        group = libddp.Group()
        for dtype in libddp.DType:
            view = group.alloc((2,), dtype)
            self.assertEqual(lend(view).tensor, (view.address, int(dtype), low.DDP_CPU, 0, (2,)))

    def test_a_lent_gradient_is_given_back_as_it_was(self):
        model = libddp.Model(libddp.Group())
        for index, grad in enumerate((array("f", [1]), Dlpack())):
            model.add_parameter(f"w{index}", Interface(shape=lend(grad).shape, data=(1 << 20 << index, False)), grad)
            self.assertIs(model.grad(index), grad)

    def test_reading_allows_read_only_memory(self):
        self.assertEqual(lend(b"abc", write=False).shape, (3,))

    def test_a_lent_buffer_cannot_be_resized(self):
        values = bytearray(8)
        kept = lend(values)
        with self.assertRaises(BufferError):
            values.extend(b"more")
        del kept
        values.extend(b"more")


class Refused(Test):
    def refuse(self, value, *words):
        with self.assertRaises(libddp.TensorError) as caught:
            lend(value, "parameter 'w'")
        text = str(caught.exception)
        for word in ("parameter 'w'", *words):
            self.assertIn(word, text)
        self.assertEqual(caught.exception.status, libddp.Status.INVALID_ARGUMENT)
        self.assertIsInstance(caught.exception, ValueError)

    def test_no_tensor(self):
        self.refuse([1.0, 2.0], "a list, not a tensor")
        self.refuse(3, "an int, not a tensor")
        self.refuse(None, "not a tensor")

    def test_element_types(self):
        self.refuse(array("h", [1]), "element type", "'h'")
        self.refuse(Torch(dtype="torch.int16"), "int16", "bfloat16")
        self.refuse(Interface(typestr="<c32"), "<c32")
        self.refuse(Dlpack(6, 8), "DLPack code 6")

    def test_places(self):
        self.refuse(memoryview(bytearray(9))[1:].cast("f"), "no multiple of 4 bytes")
        self.refuse(Interface(data=(8190, False)), "no multiple of 4 bytes")
        self.refuse(Interface(data=None), "no address")
        self.refuse(Interface(data=b"abcdefgh" * 3), "no address")

    def test_byte_order(self):
        self.refuse(Interface(typestr=">f4"), "byte order")

        class Big(ctypes.BigEndianStructure):
            _fields_ = [("value", ctypes.c_int32)]

        self.refuse((ctypes.c_int32.__ctype_be__ * 2)(), "byte order")

    def test_read_only(self):
        self.refuse(b"abc", "read-only")
        self.refuse(Interface(data=(8192, True)), "read-only")

    def test_strides(self):
        self.refuse(memoryview(array("f", range(6)))[::2], "not dense", "strides")
        self.refuse(Interface(strides=(4, 8)), "Fortran")
        self.refuse(Torch(strides=(1, 2)), "not dense")
        self.refuse(Torch(strides=(1, 2), dtype="torch.bool"), "not dense")
        self.refuse(Interface(cuda=True, strides=(24, 4)), "not dense")

    def test_devices_and_layouts(self):
        self.refuse(Torch(device=Device("mps")), "mps")
        self.refuse(Torch(layout="torch.sparse_coo"), "torch.sparse_coo")

    def test_an_immutable_array_of_jax(self):
        self.refuse(type("ArrayImpl", (), {"__module__": "jaxlib._jax"})(), "immutable", "libddp.jax")

    def test_memory_that_moved_since_it_was_lent(self):
        memory = (ctypes.c_float * 6)(), (ctypes.c_float * 6)()
        value = Torch(ctypes.addressof(memory[0]), dtype="torch.float32")
        model = libddp.Model(libddp.Group())
        model.add_parameter("layer.weight", value)
        model.commit()
        value.address = ctypes.addressof(memory[1])
        with self.assertRaisesRegex(libddp.TensorError, "parameter 'layer.weight' was moved"):
            model.begin_backward()

    def test_a_gradient_unlike_its_parameter(self):
        model = libddp.Model(libddp.Group())
        with self.assertRaisesRegex(libddp.TensorError, r"the gradient of 'w' is float32 \[1\], its parameter float32 \[2\]"):
            model.add_parameter("w", array("f", [1, 2]), array("f", [1]))
        with self.assertRaisesRegex(libddp.TensorError, r"the gradient of 'w' is float64 \[2\], its parameter float32 \[2\]"):
            model.add_parameter("w", array("f", [1, 2]), array("d", [1, 2]))
        model.add_parameter("w", array("f", [1, 2]), array("f", [1, 2]))
        model.commit()
        with self.assertRaisesRegex(libddp.TensorError, r"the gradient of parameter 'w' is float64 \[2\], its parameter float32"):
            model.set_grad("w", array("d", [1, 2]))


if __name__ == "__main__":
    main()
