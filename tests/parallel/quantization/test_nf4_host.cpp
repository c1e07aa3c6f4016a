// Oracle: the description in nf4.hpp in fp64; tests/e2e/test_qlora.py has the paper's formulas.

#include <limits>

#include "parallel/quantization/nf4.hpp"
#include "parallel/quantization/weight_codes.hpp"
#include "tests/parallel/quantization/quantization_checks.hpp"
#include "tests/parallel/same_bits.hpp"

namespace mpzero::parallel {
namespace {

// What an NF4 message holds.
at::Tensor read_nf4(const at::Tensor& message, int64_t count) {
  const at::Tensor bytes = message.narrow(0, 0, count / 2);
  const at::Tensor codes = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, 1).flatten();
  const at::Tensor levels = at::from_blob(const_cast<float*>(kNf4.v), {16}, at::kFloat);
  const int64_t blocks = count / kNf4Block;
  const at::Tensor of_blocks = message.narrow(0, count / 2, blocks).to(at::kDouble);
  const at::Tensor groups =
      message.narrow(0, count / 2 + blocks, count / kNf4Group * 8).view(at::kFloat).view({-1, 2}).to(at::kDouble);
  const at::Tensor scales = (of_blocks.view({-1, 256}) * groups.narrow(1, 1, 1) + groups.narrow(1, 0, 1));
  return levels.to(at::kDouble).index_select(0, codes.to(at::kLong)) * scales.flatten().repeat_interleave(kNf4Block);
}

}  // namespace

TEST_CASE("NF4 is decoded as specified, to the nearest level") {
  const int64_t count = 5 * kNf4Group;
  const at::Tensor values = mixed_values(count, 1);
  const at::Tensor message = at::zeros({code_bytes(WeightCodes::kNf4, count)}, at::kByte);
  encode_nf4(values.const_data_ptr<float>(), count, message.data_ptr<uint8_t>());
  const at::Tensor result = at::empty({count}), in_bf16 = at::empty({count}, at::kBFloat16);
  decode_nf4_host({message.const_data_ptr<uint8_t>(), result.data_ptr(), /*values_are_bf16=*/false, count});
  decode_nf4_host({message.const_data_ptr<uint8_t>(), in_bf16.data_ptr(), /*values_are_bf16=*/true, count});
  const at::Tensor expected = read_nf4(message, count);
  CHECK(at::allclose(result.to(at::kDouble), expected, /*rtol=*/1e-6, /*atol=*/0));
  CHECK(same_bits(in_bf16, result.to(at::kBFloat16)));
  // Half the widest gap between levels, and the error of a scale.
  const at::Tensor scales = values.abs().view({-1, kNf4Block}).amax(1);
  const at::Tensor errors = (result - values).abs().view({-1, kNf4Block}).amax(1);
  const at::Tensor groups = scales.view({-1, 256});
  const at::Tensor of_scale =
      (groups.amax(1, /*keepdim=*/true) - groups.amin(1, true)) / 509 + groups.amax(1, true) * 1e-5;
  CHECK(at::all((errors - 0.1521 * scales).view({-1, 256}) <= of_scale).item<bool>());
}

TEST_CASE("a non-finite value makes its group NaN") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const at::Tensor values = at::ones({2 * kNf4Group});
    values.narrow(0, 70, 1).fill_(bad);
    const at::Tensor message = at::zeros({code_bytes(WeightCodes::kNf4, 2 * kNf4Group)}, at::kByte);
    encode_nf4(values.const_data_ptr<float>(), 2 * kNf4Group, message.data_ptr<uint8_t>());
    const at::Tensor result = at::empty({2 * kNf4Group});
    decode_nf4_host({message.const_data_ptr<uint8_t>(), result.data_ptr(), /*values_are_bf16=*/false, 2 * kNf4Group});
    CHECK(result.narrow(0, 0, kNf4Group).isnan().all().item<bool>());
    CHECK(result.narrow(0, kNf4Group, kNf4Group).eq(1).all().item<bool>());
  }
}

TEST_CASE("no sign changes in a block that is small compared with its group") {
  const at::Tensor values = at::ones({kNf4Group});
  values.narrow(0, kNf4Block, kNf4Block).fill_(3.9);
  values.narrow(0, 2 * kNf4Block, kNf4Block).fill_(0.001);
  const at::Tensor message = at::zeros({code_bytes(WeightCodes::kNf4, kNf4Group)}, at::kByte);
  encode_nf4(values.const_data_ptr<float>(), kNf4Group, message.data_ptr<uint8_t>());
  const at::Tensor result = at::empty({kNf4Group});
  decode_nf4_host({message.const_data_ptr<uint8_t>(), result.data_ptr(), /*values_are_bf16=*/false, kNf4Group});
  CHECK(result.ge(0).all().item<bool>());
}

}  // namespace mpzero::parallel
