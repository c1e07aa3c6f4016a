#include "model/kernels/cpu/cpu.hpp"
#include "model/kernels/qk_rope.hpp"
#include "model/rope_table.hpp"
#include "tests/model/kernels/cpu/kernel_checks.hpp"

namespace mpzero::model {

TEST_CASE("norm and RoPE of queries and keys on the CPU") {
  for (const at::ScalarType type : kTypes) {
    for (const int64_t head_dim : {32, 128, 256}) {
      for (const bool with_norm : {false, true}) {
        CAPTURE(type, head_dim, with_norm);
        REQUIRE(cpu::has_rope(head_dim));
        const HeadCounts heads{6, 2};
        const int64_t batch = 2, length = 37;
        ModelConfig config;
        config.head_dim = head_dim;
        config.rope_theta = 10000.0;
        const at::Tensor qkv = numbers({batch, length, 10, head_dim}, type);
        const RopeTables tables = RopeTable(config).get(length, qkv.options());
        QkNormWeights norm, wide_norm;
        if (with_norm) {
          norm = {numbers({head_dim}, type), numbers({head_dim}, type), 1e-6};
          wide_norm = {wide(norm.query), wide(norm.key), 1e-6};
        }
        // Gradients in the order that attention leaves them, and in another.
        const at::Tensor seed = numbers({batch, 10, length, head_dim}, type).transpose(1, 2);
        const auto results = same_on_any_threads([&] {
          at::Tensor packed = qkv.clone();
          const at::Tensor out = qk_rope_forward(packed, heads, norm, tables);
          CHECK(out.is_alias_of(packed) == !with_norm);
          CHECK(packed.narrow(2, 8, 2).equal(qkv.narrow(2, 8, 2)));
          const QkRopeGradients gradients = qk_rope_backward(seed.narrow(2, 0, 6), seed.narrow(2, 6, 2),
                                                             seed.narrow(2, 8, 2), qkv, heads, norm, tables);
          std::vector<at::Tensor> all{out.contiguous(), gradients.dqkv};
          CHECK(gradients.dkey_weight_rows.defined() == with_norm);
          if (with_norm) all.insert(all.end(), {gradients.dquery_weight_rows, gradients.dkey_weight_rows});
          return all;
        });
        const RopeTables wide_tables{wide(tables.cos), wide(tables.sin)};
        at::Tensor wide_qkv = wide(qkv);
        const at::Tensor out = reference::qk_rope_forward(wide_qkv, heads, wide_norm, wide_tables).clone();
        const at::Tensor wide_seed = wide(seed);
        const QkRopeGradients gradients =
            reference::qk_rope_backward(wide_seed.narrow(2, 0, 6), wide_seed.narrow(2, 6, 2), wide_seed.narrow(2, 8, 2),
                                        wide(qkv), heads, wide_norm, wide_tables);
        CHECK(relative_error(results[0], out) < tolerance(type));
        CHECK(relative_error(results[1], gradients.dqkv) < tolerance(type));
        if (with_norm) {
          CHECK(relative_error(results[2].sum(0), gradients.dquery_weight_rows.sum(0)) < tolerance(type));
          CHECK(relative_error(results[3].sum(0), gradients.dkey_weight_rows.sum(0)) < tolerance(type));
        }
      }
    }
  }
}

TEST_CASE("heads of other sizes are rotated with ATen operators on the CPU") {
  CHECK_FALSE(cpu::has_rope(48));
  CHECK_FALSE(cpu::has_rope(288));
}

}  // namespace mpzero::model
